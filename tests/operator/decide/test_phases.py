"""What a group's phase and reason say, from what its pods show; and what a member is said to have died of."""

from datetime import UTC, datetime
from typing import Any

import pytest

from shardwright_operator.api.constants import Role
from shardwright_operator.decide.cause import cause_of
from shardwright_operator.decide.failure import find_failure
from shardwright_operator.decide.waiting import Sight, differing_images, waiting_state
from shardwright_operator.observe.containers import ContainerExit, Waiting
from shardwright_operator.observe.views import Key, PodView

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(rank: int, **fields: Any) -> PodView:
    role = Role.LEADER if rank == 0 else Role.WORKER
    standing: dict[str, Any] = {"node": f"node-{rank}", "phase": "Running", "ready_since": NOW}
    return PodView(
        key=Key("models", "llama"),
        name=f"llama-0-{role}-{rank}",
        uid=f"uid-{rank}",
        resource_version=1,
        role=role,
        group=0,
        node_rank=rank,
        pods_hash="hash",
        created_at=NOW,
        **{**standing, **fields},
    )


def ended(
    message: str = "", *, exit_code: int = 1, reason: str = "Error", at: datetime | None = None
) -> ContainerExit:
    return ContainerExit(
        container="engine", exit_code=exit_code, reason=reason, message=message, finished_at=at
    )


IDLE: dict[str, Any] = {"phase": "Pending", "ready_since": None}
UNREADY: dict[str, Any] = {"ready_since": None}


@pytest.mark.parametrize(
    ("pods", "has_served", "phase", "reason", "text"),
    [
        pytest.param(
            [pod(0, **IDLE, unschedulable="0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")],
            False,
            "Pending",
            "WaitingForCapacity",
            "needs 1 node, 8 GPUs are missing; "
            "rank 0 (llama-0-leader-0) fits no node: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
            id="no GPUs, in numbers and in the scheduler's words",
        ),
        pytest.param(
            [
                pod(
                    0,
                    **IDLE,
                    unschedulable="0/1 nodes are available: 1 Insufficient nvidia.com/gpu. no new claims to "
                    "deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found.",
                )
            ],
            False,
            "Pending",
            "WaitingForCapacity",
            "needs 1 node, 8 GPUs are missing; "
            "rank 0 (llama-0-leader-0) fits no node: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu",
            id="without the scheduler's account of whom it could have preempted",
        ),
        pytest.param(
            [pod(0, **IDLE, unschedulable='persistentvolumeclaim "models" not found')],
            False,
            "Pending",
            "WaitingForVolume",
            'rank 0 (llama-0-leader-0) fits no node: persistentvolumeclaim "models" not found',
            id="no volume",
        ),
        pytest.param(
            [pod(0, **IDLE, unschedulable="Scheduling is blocked due to non-empty scheduling gates")],
            False,
            "Pending",
            "WaitingForCapacity",
            "needs 1 node, 8 GPUs are missing; "
            "rank 0 (llama-0-leader-0) is held back: Scheduling is blocked due to non-empty scheduling gates",
            id="a queue has not let it in",
        ),
        pytest.param(
            [pod(0), pod(1, **IDLE, waiting=Waiting(reason="ErrImagePull", message="no such tag"))],
            False,
            "Pending",
            "ImagePull",
            "rank 1 (llama-0-worker-1): ErrImagePull: no such tag",
            id="no image",
        ),
        pytest.param(
            [
                pod(
                    0,
                    **IDLE,
                    waiting=Waiting(reason="CreateContainerConfigError", message='secret "a" not found'),
                )
            ],
            False,
            "Pending",
            "SecretMissing",
            'rank 0 (llama-0-leader-0): CreateContainerConfigError: secret "a" not found',
            id="no Secret",
        ),
        pytest.param(
            [pod(0)],
            False,
            "Starting",
            "Starting",
            "1 of 2 pods exist; what holds a pod back: kubectl describe statefulset llama-0-worker",
            id="a pod is missing",
        ),
        pytest.param(
            [pod(0, **UNREADY), pod(1, **IDLE)],
            False,
            "Starting",
            "Starting",
            "waiting for rank 1 to run: llama-0-worker-1 on node node-1 prepares its image and volumes",
            id="a rank does not run yet",
        ),
        pytest.param(
            [pod(0, **IDLE), pod(1, **IDLE)],
            False,
            "Starting",
            "Starting",
            "waiting for ranks 0, 1 to run: llama-0-leader-0 on node node-0 prepares its image and volumes",
            id="no rank runs yet",
        ),
        pytest.param(
            [pod(0, **UNREADY), pod(1, **UNREADY)],
            True,
            "Degraded",
            "GroupDegraded",
            "ranks 0, 1 are not ready any more (node node-0, node-1)",
            id="both served before",
        ),
        pytest.param(
            [pod(0, **UNREADY), pod(1)],
            False,
            "Forming",
            "Forming",
            "all 2 ranks run; waiting for rank 0 to be ready",
            id="all run",
        ),
        pytest.param(
            [
                pod(0, **UNREADY, image_id=f"docker.io/vllm/vllm-openai@sha256:{'a' * 64}"),
                pod(1, image_id=f"docker.io/vllm/vllm-openai@sha256:{'b' * 64}"),
            ],
            False,
            "Forming",
            "ImagesDiffer",
            "all 2 ranks run; waiting for rank 0 to be ready; the ranks run different builds of "
            "docker.io/vllm/vllm-openai (aaaaaaaaaaaa on rank 0, bbbbbbbbbbbb on rank 1): "
            "give spec.engine.image by digest, or a tag that never moves",
            id="a tag moved between two pulls",
        ),
        pytest.param(
            [pod(0, **UNREADY), pod(1)],
            True,
            "Degraded",
            "GroupDegraded",
            "rank 0 is not ready any more (node node-0)",
            id="served before",
        ),
        pytest.param(
            [
                pod(
                    0,
                    **UNREADY,
                    restarts=2,
                    waiting=Waiting(reason="CrashLoopBackOff", message="back-off 40s"),
                    last_exit=ended("shardwright: ModelNotFound: no repository x/y"),
                )
            ],
            False,
            "Restarting",
            "ModelNotFound",
            "rank 0 (llama-0-leader-0): CrashLoopBackOff: back-off 40s",
            id="a group of one that crashes again and again",
        ),
    ],
)
def test_a_group_that_does_not_serve_says_where_it_stands(
    pods: list[PodView], *, has_served: bool, phase: str, reason: str, text: str
) -> None:
    members = max(2, len(pods)) if reason != "ModelNotFound" else 1
    state = waiting_state(
        Sight(
            pods=pods,
            members=members,
            has_served=has_served,
            incomplete_set="llama-0-worker",
            is_late=True,
            shortfall="1 node, 8 GPUs are missing",
        )
    )
    assert (state.phase, state.reason, state.message) == (phase, reason, text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("x/vllm@sha256:aa", "x/vllm@sha256:aa", id="the same"),
        pytest.param("x/vllm@sha256:aa", "", id="one is not known yet"),
        pytest.param("x/vllm@sha256:aa", "sha256:cc", id="one was loaded by hand"),
        pytest.param("x/vllm@sha256:aa", "mirror/vllm@sha256:bb", id="another registry counts anew"),
    ],
)
def test_images_that_are_not_known_to_differ(one: str, other: str) -> None:
    assert differing_images([pod(0, image_id=one), pod(1, image_id=other)]) == ""


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"last_exit": ended(reason="OOMKilled", exit_code=137)}, "OutOfMemory", id="killed"),
        pytest.param(
            {"last_exit": ended("torch.OutOfMemoryError: CUDA out of memory")}, "OutOfMemory", id="GPU"
        ),
        pytest.param({"last_exit": ended("NVRM: GPU has fallen off the bus")}, "GpuLost", id="GPU fell off"),
        pytest.param({"reason": "UnexpectedAdmissionError"}, "GpuLost", id="kubelet has no healthy GPU"),
        pytest.param(
            {"last_exit": ended("RepositoryNotFoundError: 401 Client Error")},
            "ModelNotFound",
            id="no model",
        ),
        pytest.param({"last_exit": ended("403 Client Error: gated repo")}, "AccessDenied", id="no access"),
        pytest.param({"last_exit": ended(exit_code=2)}, "ConfigRejected", id="exit code of argparse"),
        pytest.param({"last_exit": ended(reason="StartError")}, "ConfigRejected", id="no such command"),
        pytest.param(
            {"last_exit": ended("DistStoreError: Timed out after 601 seconds, 1/2 clients joined")},
            "RendezvousTimeout",
            id="a rank never came",
        ),
        pytest.param({"last_exit": ended("Connection reset by peer")}, "PeerLost", id="a peer went"),
        pytest.param(
            {
                "last_exit": ended(
                    "shardwright: EngineStalled: no iteration for 120 s\nConnection reset by peer"
                )
            },
            "EngineStalled",
            id="the launcher knows better",
        ),
        pytest.param(
            {"last_exit": ended("shardwright: Unknown: engine ended with 1")}, "MemberLost", id="it does not"
        ),
        pytest.param(
            {"last_exit": ended("shardwright: DeleteEverything: ha")},
            "MemberLost",
            id="not a launcher's word",
        ),
        pytest.param({"reason": "Evicted", "message": "low on memory"}, "Evicted", id="by its kubelet"),
        pytest.param({"disruption": "PreemptionByScheduler"}, "Preempted", id="by the scheduler"),
        pytest.param({"reason": "Preempting"}, "Preempted", id="by its kubelet, for a critical pod"),
        pytest.param(
            {"disruption": "EvictionByEvictionAPI", "last_exit": ended("Connection reset by peer")},
            "Evicted",
            id="evicted, whatever the engine then said",
        ),
        pytest.param({"disruption": "DeletionByPodGC"}, "NodeLost", id="node gone"),
        pytest.param({}, "MemberLost", id="nobody knows"),
    ],
)
def test_what_a_pod_shows_names_the_cause(fields: dict[str, Any], reason: str) -> None:
    assert cause_of(pod(1, **fields)).reason == reason


def test_the_cause_comes_before_what_the_peers_say_of_it() -> None:
    leader = pod(0, restarts=1, last_exit=ended("Connection reset by peer", at=NOW))
    worker = pod(1, restarts=1, last_exit=ended("CUDA out of memory", at=NOW.replace(minute=1)))
    failure = find_failure(["uid-0", "uid-1"], [leader, worker], {})
    assert failure is not None
    assert (failure.reason, failure.node_rank) == ("OutOfMemory", 1)
    assert failure.message == (
        "a container of rank 1 (llama-0-worker-1) restarted in place: container engine Error "
        "with exit code 1 on node node-1: CUDA out of memory"
    )


def test_of_two_that_ended_the_first_is_told() -> None:
    leader = pod(0, restarts=1, last_exit=ended(at=NOW.replace(minute=2)))
    worker = pod(1, restarts=1, last_exit=ended(at=NOW.replace(minute=1)))
    failure = find_failure(["uid-0", "uid-1"], [leader, worker], {})
    assert failure is not None
    assert failure.node_rank == 1


def test_a_deleted_member_comes_before_the_crash_that_it_caused() -> None:
    leader = pod(0, restarts=1, last_exit=ended("some assertion", at=NOW))
    failure = find_failure(["uid-0", "uid-1"], [leader], {"uid-1": pod(1, deleting=True)})
    assert failure is not None
    assert (failure.reason, failure.node_rank) == ("MemberLost", 1)
