"""Losses with a twist: nodes that never answer again, pods of an older resource, containers that only end."""

import copy
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shardwright_operator.api.constants import Annotation
from shardwright_operator.decide import decide, remains
from shardwright_operator.decide.decision import Apply, Decision
from shardwright_operator.observe.views import ChildKind, WriteNote
from simulated_world import NAMESPACE, SimulatedWorld

LLAMA_405B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "recovery": {"backoff": "10s", "maxRestarts": 2},
}
LLAMA_8B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
    "recovery": {"maxRestarts": 2, "resetAfter": "1h"},
}
LEADER, WORKER = "llama-0-leader-0", "llama-0-worker-1"
TAINTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}


@pytest.fixture
def world() -> SimulatedWorld:
    settled = SimulatedWorld(LLAMA_405B)
    settled.settle()
    return settled


@pytest.fixture
def small() -> SimulatedWorld:
    settled = SimulatedWorld(LLAMA_8B)
    settled.settle()
    return settled


def message_of_group(world: SimulatedWorld) -> str:
    return str(world.status["groups"][0]["message"])


def end_container(world: SimulatedWorld, name: str) -> None:
    """The container has ended, and its kubelet has not restarted it yet."""
    pod = world.get("Pod", name)
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": world.now.isoformat()}
    pod["status"]["containerStatuses"][0]["state"] = {"terminated": ended}
    world.touch(pod)


def restart_after(world: SimulatedWorld, served: timedelta) -> None:
    """The only pod's container ends after so long a service, and is restarted in place."""
    started = world.now
    world.now += served
    world.restart_container(LEADER, exit_code=1, reason="Error")
    pod = world.get("Pod", LEADER)
    pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["startedAt"] = started.isoformat()
    world.touch(pod)
    world.settle()


def strand(world: SimulatedWorld, pod: str, *, disruption: str = "") -> str:
    """The pod's node falls silent and the pod is deleted: nobody will ever confirm its end."""
    body = world.get("Pod", pod)
    if disruption:
        body["status"]["conditions"].append(
            {"type": "DisruptionTarget", "status": "True", "reason": disruption}
        )
    world.delete_pod(pod)
    node = world.get("Node", body["spec"]["nodeName"])
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    world.touch(node)
    return str(node["metadata"]["name"])


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        pytest.param(
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            "Evicted",
            "rank 1 (llama-0-worker-1) was lost: low on memory on node",
            id="evicted by its kubelet",
        ),
        pytest.param({"conditions": [TAINTED]}, "NodeLost", "DeletionByTaintManager", id="its node was lost"),
    ],
)
def test_a_cause_that_is_learnt_after_the_loss_is_the_one_that_is_kept(
    world: SimulatedWorld, status: dict[str, Any], reason: str, words: str
) -> None:
    """The pod that takes a lost one's place is another object, whose events may come first."""
    old = copy.deepcopy(world.get("Pod", WORKER))
    successor = copy.deepcopy(old)
    successor["metadata"].update(uid="successor", resourceVersion="999998")
    world.objects["Pod", WORKER] = successor
    world.tell(successor, deleted=False)
    world.reconcile()
    assert first_failure(world)["reason"] == "MemberLost"

    old["status"].update(status)
    old["metadata"]["resourceVersion"] = "999999"
    world.tell(old, deleted=True)
    world.reconcile()
    kept = first_failure(world)
    assert (kept["reason"], kept["podUid"]) == (reason, old["metadata"]["uid"])
    assert words in kept["message"]
    assert [event.reason for event in world.events[-2:]] == ["MemberLost", reason]
    world.settle()
    assert [event.reason for event in world.events].count(reason) == 1
    assert world.condition("Ready") == ("True", "GroupsReady")


def test_what_a_member_says_as_it_is_ended_is_no_cause(world: SimulatedWorld) -> None:
    """Its engine complains of the peers that went with the group."""
    old = copy.deepcopy(world.get("Pod", WORKER))
    world.delete_pod(WORKER)
    world.reconcile()
    ended = {"exitCode": 1, "message": "NCCL watchdog timeout", "finishedAt": world.now.isoformat()}
    old["status"]["containerStatuses"][0]["state"] = {"terminated": ended}
    old["metadata"]["resourceVersion"] = "999999"
    world.tell(old, deleted=True)
    world.reconcile()
    assert first_failure(world)["reason"] == "MemberLost"


def first_failure(world: SimulatedWorld) -> dict[str, Any]:
    leader = world.objects["StatefulSet", "llama-0-leader"]["metadata"]["annotations"]
    found: dict[str, Any] = json.loads(leader[Annotation.EVIDENCE])
    return found


def test_an_ended_container_breaks_a_group_before_it_is_restarted(world: SimulatedWorld) -> None:
    end_container(world, WORKER)
    world.settle()
    failure = world.status["groups"][0]["firstFailure"]
    assert (failure["reason"], failure["exitCode"]) == ("OutOfMemory", 137)
    assert failure["message"].startswith(f"a container of rank 1 ({WORKER}) ended")
    assert world.status["ready"] == "1/1"


def test_a_pod_on_a_silent_node_is_named_and_forced_away_after_its_time(world: SimulatedWorld) -> None:
    node = strand(world, WORKER)
    world.reconcile()
    world.controllers()
    world.remove("Pod", LEADER)
    world.now += timedelta(minutes=5)
    world.reconcile()
    assert message_of_group(world) == f"waiting for pod {WORKER}, which node {node} does not end"
    # The deadline is long over, so that very pass has forced it away.
    assert WORKER not in world.pods


@pytest.mark.parametrize(
    ("disruption", "stays"),
    [
        pytest.param("DeletionByTaintManager", False, id="Kubernetes says that the node is lost"),
        pytest.param("", True, id="nothing says so"),
    ],
)
def test_without_the_right_to_read_nodes_the_pod_itself_must_say_it(disruption: str, *, stays: bool) -> None:
    world = SimulatedWorld(LLAMA_405B, one_namespace=True)
    world.settle()
    strand(world, WORKER, disruption=disruption)
    world.reconcile()
    world.controllers()
    world.remove("Pod", LEADER)
    world.now += timedelta(minutes=5)
    world.reconcile()
    assert (WORKER in world.pods) is stays


def test_pods_of_an_older_resource_are_waited_for_and_count_as_no_failure() -> None:
    world = SimulatedWorld(LLAMA_405B)
    world.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": LEADER,
                "namespace": NAMESPACE,
                "labels": {
                    "shardwright.dev/model-deployment": "llama",
                    "shardwright.dev/group-index": "0",
                    "shardwright.dev/role": "leader",
                },
                "ownerReferences": [
                    {"kind": "StatefulSet", "name": "llama-0-leader", "uid": "gone", "controller": True}
                ],
            },
            "spec": {"nodeName": "node-0"},
            "status": {"phase": "Running"},
        }
    )
    world.reconcile()
    assert message_of_group(world) == "waiting for 1 pod to go, left behind by a StatefulSet that was deleted"
    assert world.of_kind("StatefulSet") == {}
    world.settle()
    assert (world.status["ready"], world.status["groups"][0]["restarts"]) == ("1/1", 0)


def test_a_child_of_an_older_resource_that_is_going_is_waited_for(world: SimulatedWorld) -> None:
    service = world.get("Service", "llama")
    service["metadata"]["ownerReferences"][0]["uid"] = "gone"
    service["metadata"]["deletionTimestamp"] = world.now.isoformat()
    world.touch(service)
    decision = world.reconcile()
    assert decision.stages == ()
    assert world.condition("Ready") == ("False", "NameConflict")
    assert world.condition("Stalled") is None
    world.remove("Service", "llama")
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")


def test_what_kubernetes_does_not_collect_of_an_older_resource_is_removed(world: SimulatedWorld) -> None:
    """Its collector misses the end of a resource that is made anew while its watch is broken."""
    for kind, name in (("Service", "llama"), ("StatefulSet", "llama-0-leader")):
        child = world.get(kind, name)
        child["metadata"]["ownerReferences"][0]["uid"] = "gone"
        world.touch(child)
    assert world.reconcile().requeue_after_s == 60
    world.now += timedelta(seconds=59)
    assert world.reconcile().stages == ()
    world.now += timedelta(seconds=1)
    world.writes.clear()
    world.reconcile()
    assert world.writes == ["delete Service llama", "delete StatefulSet llama-0-leader"]
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")


def test_what_has_a_further_owner_is_left_to_it_and_told(world: SimulatedWorld) -> None:
    """Kubernetes keeps an object as long as one of its owners lives."""
    service = world.get("Service", "llama")
    owner = service["metadata"]["ownerReferences"][0]
    further = {"apiVersion": "v1", "kind": "ConfigMap", "name": "bill", "uid": "lives"}
    service["metadata"]["ownerReferences"] = [{**owner, "uid": "gone"}, further]
    world.touch(service)
    for minutes in (0, 2, 5):
        world.now += timedelta(minutes=minutes)
        assert world.reconcile().stages == ()
    assert world.condition("Stalled") == ("True", "NameConflict")
    assert (
        "a further one for which Kubernetes keeps it; delete it" in world.status["conditions"][0]["message"]
    )


def test_a_child_of_an_older_resource_that_does_not_go_is_told_what_to_do_with(
    world: SimulatedWorld,
) -> None:
    service = world.get("Service", "llama")
    service["metadata"]["ownerReferences"][0]["uid"] = "gone"
    service["metadata"]["deletionTimestamp"] = world.now.isoformat()
    world.touch(service)
    assert world.reconcile().requeue_after_s == 60
    world.now += timedelta(seconds=299)
    assert world.reconcile().requeue_after_s == 1
    assert world.condition("Stalled") is None
    world.now += timedelta(seconds=1)
    assert world.reconcile().stages == ()
    assert world.condition("Stalled") == ("True", "NameConflict")
    assert "who has to act on its metadata.finalizers" in world.status["conditions"][0]["message"]
    world.remove("Service", "llama")
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")


def test_an_orphan_stalls_until_a_person_has_acted(world: SimulatedWorld) -> None:
    service = world.get("Service", "llama")
    del service["metadata"]["ownerReferences"]
    world.touch(service)
    assert world.reconcile().stages == ()
    assert world.condition("Stalled") == ("True", "NameConflict")


def test_a_deleted_leader_set_is_told_as_what_broke_the_group(world: SimulatedWorld) -> None:
    world.remove("StatefulSet", "llama-0-leader")
    world.settle()
    leader = world.get("StatefulSet", "llama-0-leader")["metadata"]["annotations"]
    evidence = json.loads(leader[Annotation.EVIDENCE])
    assert evidence["message"] == "the leader set llama-0-leader was deleted"
    assert world.status["groups"][0]["restarts"] == 1


def test_restarts_in_place_of_a_group_of_one_count_towards_the_cap(small: SimulatedWorld) -> None:
    for _ in range(2):
        restart_after(small, timedelta(minutes=1))
    assert small.status["groups"][0]["restarts"] == 2
    assert small.status["groups"][0]["firstFailure"]["exitCode"] == 1
    assert small.status["ready"] == "1/1"
    restart_after(small, timedelta(minutes=1))
    assert small.condition("Stalled") == ("True", "RestartLimit")
    assert small.pods == {}
    assert [e.reason for e in small.events if e.type == "Warning"][:3] == ["ContainerRestarted"] * 3


def test_restarts_in_place_are_forgotten_after_long_service(small: SimulatedWorld) -> None:
    for _ in range(5):
        restart_after(small, timedelta(hours=2))
    assert small.status["groups"][0]["restarts"] == 1
    assert small.status["ready"] == "1/1"


def refuse(world: SimulatedWorld, kind: str, name: str, *, foreign: bool = False) -> dict[Any, WriteNote]:
    """The note of a write that the server has refused, to be tried again in ten seconds."""
    note = WriteNote(
        kind=ChildKind(kind),
        name=name,
        digest="",
        refused="denied the request",
        foreign=foreign,
        retry_at=world.now + timedelta(seconds=10),
    )
    return {(note.kind, note.name): note}


def decide_with(world: SimulatedWorld, notes: dict[Any, WriteNote]) -> Decision:
    return decide(world.store.observe(world.key, notes=notes), world.now, world.settings)


def applied(decision: Decision) -> list[tuple[str, object]]:
    """Names of the sets that are written, and how many pods they want."""
    writes = [w for stage in decision.stages for w in stage if isinstance(w, Apply)]
    return [(w.name, w.manifest["spec"]["replicas"]) for w in writes if w.kind is ChildKind.STATEFUL_SET]


def test_a_refused_child_of_a_group_that_is_made_beside_one_that_leaves_is_told_and_waited_for() -> None:
    # In a namespace that was deleted during a rollout the policy of group 4 was tried seven times in five
    # seconds: while group 2 left, no note about a fifth group counted, and no status told of the refusal.
    world = SimulatedWorld({**LLAMA_8B, "replicas": 3, "rollout": {"maxSurge": 1}}, nodes=4)
    world.settle()
    world.edit(lambda spec: spec.update(engine={"env": [{"name": "A", "value": "b"}]}))
    for _ in range(20):
        wanted = {w.name for stage in world.decision().stages for w in stage if isinstance(w, Apply)}
        if "llama-4" in wanted:
            break
        world.step()
    assert "llama-4" in wanted
    written = next(
        w
        for stage in world.decision().stages
        for w in stage
        if isinstance(w, Apply) and (w.kind, w.name) == (ChildKind.NETWORK_POLICY, "llama-4")
    )
    ((place, note),) = refuse(world, "NetworkPolicy", "llama-4").items()

    decision = decide_with(world, {place: replace(note, digest=written.digest)})

    tried = {(w.kind, w.name) for stage in decision.stages for w in stage if isinstance(w, Apply)}
    assert place not in tried
    assert (ChildKind.STATEFUL_SET, "llama-4-leader") not in tried
    assert decision.status is not None
    told = [c["message"] for c in decision.status["conditions"] if c["reason"] == "WriteRefused"]
    assert told[0].startswith("the API server refuses NetworkPolicy llama-4: denied the request")


@pytest.mark.parametrize(
    ("kind", "name", "starts"),
    [
        pytest.param("NetworkPolicy", "llama-0", False, id="its policy"),
        pytest.param("Service", "llama-0-ranks", False, id="its Service"),
        pytest.param("Service", "llama", False, id="the client Service"),
        pytest.param("ControllerRevision", "llama-0123456789", True, id="a revision that is wanted no more"),
        pytest.param("NetworkPolicy", "llama-1", True, id="another group's policy"),
        pytest.param("Service", "llama-10-ranks", True, id="Service of a group whose number begins alike"),
    ],
)
def test_a_group_does_not_start_while_something_it_needs_is_refused(
    kind: str, name: str, *, starts: bool
) -> None:
    world = SimulatedWorld(LLAMA_405B)
    notes = refuse(world, kind, name)
    assert bool(applied(decide_with(world, notes))) is starts
    world.now += timedelta(seconds=10)
    assert applied(decide_with(world, notes)) == [("llama-0-leader", 1), ("llama-0-worker", 1)]


def test_a_group_that_runs_is_not_taken_down_for_a_refused_write(world: SimulatedWorld) -> None:
    decision = decide_with(world, refuse(world, "NetworkPolicy", "llama-0"))
    assert applied(decision) == []


@pytest.mark.parametrize(
    "foreign", [pytest.param(True, id="held by another"), pytest.param(False, id="refused")]
)
def test_the_half_of_a_group_whose_other_half_cannot_be_is_taken_down(*, foreign: bool) -> None:
    world = SimulatedWorld(LLAMA_405B)
    world.reconcile()
    world.remove("StatefulSet", "llama-0-worker")
    world.controllers()
    notes = refuse(world, "StatefulSet", "llama-0-worker", foreign=foreign)
    assert applied(decide_with(world, notes)) == [("llama-0-leader", 0)]


@pytest.mark.parametrize(
    "foreign", [pytest.param(True, id="held by another"), pytest.param(False, id="refused")]
)
def test_a_refusal_of_what_is_wanted_no_more_is_forgotten(world: SimulatedWorld, *, foreign: bool) -> None:
    decision = decide_with(world, refuse(world, "Service", "llama-1-ranks", foreign=foreign))
    assert (decision.stages, decision.status) == ((), None)


def test_a_pod_whose_grace_was_cut_short_is_looked_at_when_it_becomes_overdue(world: SimulatedWorld) -> None:
    node = strand(world, WORKER)
    world.reconcile()
    world.controllers()
    world.remove("Pod", LEADER)
    # This pass shortens the grace; nothing but its own time tells when to come back.
    first = world.reconcile().requeue_after_s
    assert first == 3
    world.now += timedelta(seconds=first)
    second = world.reconcile().requeue_after_s
    assert message_of_group(world) == f"waiting for pod {WORKER}, which node {node} does not end"
    assert (second, WORKER in world.pods) == (30, True)
    world.now += timedelta(seconds=second)
    world.reconcile()
    assert WORKER not in world.pods


def test_who_is_waited_for_when_the_last_pod_is_gone_is_said_for_users(world: SimulatedWorld) -> None:
    # "waiting for the sets' controller" told nobody whose controller that is, or what it is to do.
    world.restart_container(WORKER, exit_code=1, reason="Error")
    world.reconcile()
    world.kubelets()
    world.reconcile()
    assert world.pods == {}
    expected = "waiting for Kubernetes to confirm that its StatefulSets have no pods left"
    assert message_of_group(world) == expected


def test_a_pod_that_a_controller_makes_from_its_cache_is_left_to_it_for_a_while(
    world: SimulatedWorld,
) -> None:
    # After a restart of the API server the sets' controller worked from its cache for 30 s: each pod of a
    # group that was down was deleted at once and came again at once, 50 times, with 200 statuses.
    world.restart_container(WORKER, exit_code=1, reason="Error")
    world.reconcile()
    world.kubelets()
    assert world.pods == {}
    world._create_pod(world.get("StatefulSet", "llama-0-worker"), WORKER, 1)
    world.writes.clear()
    assert world.reconcile().requeue_after_s == remains.NEWBORN_S
    assert world.writes == ["status"]
    world.now += timedelta(seconds=remains.NEWBORN_S)
    world.reconcile()
    assert [write for write in world.writes if write != "status"] == [f"delete Pod {WORKER}"]
