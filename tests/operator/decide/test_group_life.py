"""The life of a resource as whole sequences: what is written, in which order, and where it ends."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from shardwright_operator.api.constants import GPU_RESOURCE, Annotation, Label
from simulated_world import SimulatedWorld

LLAMA_405B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "slo": {"concurrency": 32, "timePerOutputToken": "150ms", "timeToFirstToken": "30s"},
    "recovery": {"backoff": "10s", "maxRestarts": 2},
}
LLAMA_8B: dict[str, Any] = {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}}


@pytest.fixture
def world() -> SimulatedWorld:
    return SimulatedWorld(LLAMA_405B).settled()


@pytest.fixture
def small() -> SimulatedWorld:
    return SimulatedWorld(LLAMA_8B).settled()


def test_a_new_resource_gets_its_children_records_first() -> None:
    world = SimulatedWorld(LLAMA_405B)
    world.reconcile()
    revision = next(iter(world.of_kind("ControllerRevision")))
    launcher = next(iter(world.of_kind("ConfigMap")))
    assert world.writes == [
        f"apply ControllerRevision {revision}",
        f"apply ConfigMap {launcher}",
        "apply Service llama",
        "apply Service llama-0-ranks",
        "apply NetworkPolicy llama-0",
        "apply PodDisruptionBudget llama-0",
        "apply StatefulSet llama-0-leader",
        "apply StatefulSet llama-0-worker",
        "status",
    ]


def test_the_group_has_each_rank_once_and_the_plan_s_gpus(world: SimulatedWorld) -> None:
    plan = world.status["plan"]
    pods = world.pods
    gpus = [p["spec"]["containers"][0]["resources"]["limits"][GPU_RESOURCE] for p in pods.values()]
    assert (plan["tensorParallel"], plan["pipelineParallel"], plan["nodes"]) == (8, 2, 2)
    assert sorted(pods) == ["llama-0-leader-0", "llama-0-worker-1"]
    assert sorted(p["metadata"]["labels"][Label.POD_INDEX] for p in pods.values()) == ["0", "1"]
    assert sum(map(int, gpus)) == 16
    assert len({p["spec"]["nodeName"] for p in pods.values()}) == 2
    assert world.status["ready"] == "1/1"
    assert world.condition("Ready") == ("True", "GroupsReady")


@pytest.mark.parametrize(
    ("time_per_token", "told"),
    [
        pytest.param("150ms", [("Normal", "Planned"), ("Normal", "GroupsReady")], id="met: one event"),
        pytest.param(
            "1ms",
            [("Normal", "Planned"), ("Warning", "SLOMissed"), ("Normal", "GroupsReady")],
            id="missed: a warning of its own",
        ),
    ],
)
def test_events_of_a_start_tell_of_the_plan_and_its_prospect(
    time_per_token: str, told: list[tuple[str, str]]
) -> None:
    slo = {**LLAMA_405B["slo"], "timePerOutputToken": time_per_token}
    world = SimulatedWorld({**LLAMA_405B, "slo": slo})
    world.settle()
    assert [(event.type, event.reason) for event in world.events] == told
    prospect = world.message("SLOPredicted")
    # In the middle of a sentence its first letter is no capital.
    assert [event.reason for event in world.events if prospect[1:] in event.message] == [told[-2][1]]


def test_a_model_that_fits_one_gpu_has_no_worker_set(small: SimulatedWorld) -> None:
    assert sorted(small.of_kind("StatefulSet")) == ["llama-0-leader"]
    assert small.status["plan"]["gpusPerReplica"] == 1


def test_a_second_pass_over_an_unchanged_world_writes_nothing(world: SimulatedWorld) -> None:
    decision = world.reconcile()
    assert (decision.stages, decision.status, decision.events) == ((), None, ())


@pytest.mark.parametrize("writes", range(9))
def test_an_operator_that_dies_between_two_writes_converges(writes: int) -> None:
    world = SimulatedWorld(LLAMA_405B)
    world.reconcile(die_after=writes)
    world.controllers()
    world.restart_operator()
    world.settle()
    assert world.status["ready"] == "1/1"
    # No pod was made twice: nothing was taken down on the way.
    assert len(world.trace) == 2


@pytest.mark.parametrize("pod", ["llama-0-leader-0", "llama-0-worker-1"])
def test_a_deleted_member_takes_the_whole_group_through_the_barrier(world: SimulatedWorld, pod: str) -> None:
    before = {p["metadata"]["uid"] for p in world.pods.values()}
    world.delete_pod(pod)
    world.settle()
    after = {p["metadata"]["uid"] for p in world.pods.values()}
    leader = world.get("StatefulSet", "llama-0-leader")["metadata"]["annotations"]
    evidence = json.loads(leader[Annotation.EVIDENCE])
    assert before.isdisjoint(after)
    assert world.status["ready"] == "1/1"
    assert leader[Annotation.ATTEMPT] == "1"
    assert (evidence["pod"], evidence["reason"]) == (pod, "MemberLost")
    assert [e.reason for e in world.events if e.type == "Warning"] == ["MemberLost"]


def test_a_member_replaced_while_the_operator_was_down_breaks_the_group(world: SimulatedWorld) -> None:
    leader = world.get("Pod", "llama-0-leader-0")["metadata"]["uid"]
    world.delete_pod("llama-0-worker-1", grace_s=0)
    world.controllers()
    world.kubelets()
    world.restart_operator()
    world.settle()
    assert world.get("Pod", "llama-0-leader-0")["metadata"]["uid"] != leader
    assert world.status["ready"] == "1/1"


def test_a_member_replaced_before_the_group_was_recorded_breaks_it_too() -> None:
    world = SimulatedWorld(LLAMA_405B)
    world.reconcile()
    world.controllers()
    world.kubelets()
    leader = world.get("Pod", "llama-0-leader-0")["metadata"]["uid"]
    world.now = world.now.replace(minute=5)
    world.delete_pod("llama-0-worker-1", grace_s=0)
    world.controllers()
    world.restart_operator()
    world.settle()
    assert world.get("Pod", "llama-0-leader-0")["metadata"]["uid"] != leader


def test_a_container_restarted_in_place_breaks_a_group_of_several(world: SimulatedWorld) -> None:
    world.restart_container("llama-0-worker-1", exit_code=137, reason="OOMKilled")
    world.settle()
    failure = world.status["groups"][0]["firstFailure"]
    assert (failure["reason"], failure["exitCode"], failure["nodeRank"]) == ("OutOfMemory", 137, 1)
    assert "fell off the bus" in failure["terminationMessage"]
    assert world.status["ready"] == "1/1"


def test_a_container_restarted_in_place_leaves_a_group_of_one_alone(small: SimulatedWorld) -> None:
    uid = small.get("Pod", "llama-0-leader-0")["metadata"]["uid"]
    small.restart_container("llama-0-leader-0")
    small.settle()
    assert small.get("Pod", "llama-0-leader-0")["metadata"]["uid"] == uid
    assert small.status["groups"][0]["restarts"] == 1


def test_a_replaced_pod_of_a_group_of_one_counts_and_keeps_its_evidence(small: SimulatedWorld) -> None:
    small.delete_pod("llama-0-leader-0")
    small.settle()
    group = small.status["groups"][0]
    assert (group["restarts"], group["firstFailure"]["reason"]) == (1, "MemberLost")


@pytest.mark.parametrize("name", ["llama-0-leader", "llama-0-worker"])
def test_a_deleted_set_brings_the_whole_group_back(world: SimulatedWorld, name: str) -> None:
    before = {p["metadata"]["uid"] for p in world.pods.values()}
    world.remove("StatefulSet", name)
    world.settle()
    assert before.isdisjoint(p["metadata"]["uid"] for p in world.pods.values())
    assert world.status["ready"] == "1/1"


def test_the_group_waits_for_its_back_off_and_tells_when(world: SimulatedWorld) -> None:
    world.delete_pod("llama-0-worker-1")
    for _ in range(4):
        world.reconcile()
        world.controllers()
        world.kubelets()
    decision = world.reconcile()
    assert world.pods == {}
    assert world.condition("Ready") == ("False", "BackingOff")
    assert decision.requeue_after_s is not None
    assert 5 < decision.requeue_after_s <= 13


def test_a_group_is_given_up_at_the_limit_and_a_new_annotation_tries_again(world: SimulatedWorld) -> None:
    for _ in range(3):
        world.restart_container("llama-0-worker-1", exit_code=1, reason="Error")
        world.settle()
    assert world.condition("Stalled") == ("True", "RestartLimit")
    assert world.pods == {}
    assert "first failure: a container of rank 1" in world.status["conditions"][0]["message"]
    world.resource["metadata"]["annotations"] = {Annotation.RETRY: "1"}
    world.touch(world.resource)
    world.settle()
    assert world.status["ready"] == "1/1"
    assert world.status["groups"][0]["restarts"] == 0


def test_an_edit_of_the_environment_keeps_the_topology_and_replaces_the_group(world: SimulatedWorld) -> None:
    plan, before = world.status["plan"], set(world.trace)
    world.edit(lambda spec: spec.update(engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}))
    world.settle()
    assert world.status["plan"] == plan
    assert len(world.trace) - len(before) == 2
    assert len(world.of_kind("ControllerRevision")) == 2
    assert world.status["groups"][0]["restarts"] == 0


def test_an_edit_of_the_service_level_changes_the_plan_and_restarts_nothing(world: SimulatedWorld) -> None:
    world.edit(lambda spec: spec["slo"].update(timePerOutputToken="140ms"))
    world.settle()
    assert world.status["plan"]["goal"]["timePerOutputTokenMs"] == 140
    assert world.trace == []


def test_the_number_of_replicas_is_no_input_of_the_plan(world: SimulatedWorld) -> None:
    world.edit(lambda spec: spec.update(replicas=0))
    world.settle()
    assert len(world.of_kind("ControllerRevision")) == 1
    assert (sorted(world.of_kind("StatefulSet")), world.pods) == ([], {})
    assert world.condition("Ready") == ("True", "ScaledToZero")


def test_another_operator_version_changes_nothing(world: SimulatedWorld) -> None:
    world.settings = type(world.settings)(operator_version="2.0.0", default_image="vllm/vllm-openai:v0.33.0")
    world.restart_operator()
    decision = world.reconcile()
    assert (decision.stages, decision.status) == ((), None)


def test_a_lost_status_comes_back_with_the_same_plan_and_restarts_nothing(world: SimulatedWorld) -> None:
    status = json.loads(json.dumps(world.status))
    world.resource["status"] = {"observedGeneration": -1}
    world.touch(world.resource)
    world.settle()
    for was, is_ in zip(status["conditions"], world.status["conditions"], strict=True):
        assert {**was, "lastTransitionTime": ""} == {**is_, "lastTransitionTime": ""}
    assert {**world.status, "conditions": []} == {**status, "conditions": []}
    assert world.trace == []


def test_nodes_that_come_and_go_change_no_plan(world: SimulatedWorld) -> None:
    world.add_node("node-9", "NVIDIA-H200")
    world.remove("Node", "node-0")
    assert world.reconcile().stages == ()


def test_a_smaller_topology_removes_the_worker_set_and_leaves_no_orphan(world: SimulatedWorld) -> None:
    world.edit(lambda spec: spec["model"].update(name="meta-llama/Llama-3.1-8B-Instruct"))
    world.settle()
    assert sorted(world.of_kind("StatefulSet")) == ["llama-0-leader"]
    assert sorted(world.pods) == ["llama-0-leader-0"]


def test_undoing_an_edit_comes_back_to_the_same_revision(world: SimulatedWorld) -> None:
    first = world.status["revision"]
    world.edit(lambda spec: spec.update(engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}))
    world.settle()
    world.edit(lambda spec: spec.pop("engine"))
    world.settle()
    assert world.status["revision"] == first
    assert len(world.of_kind("ControllerRevision")) == 2


def test_while_paused_a_broken_group_comes_back_on_its_old_revision(world: SimulatedWorld) -> None:
    old = world.status["groups"][0]["revision"]
    world.edit(
        lambda spec: spec.update(
            rollout={"paused": True}, engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}
        )
    )
    world.settle()
    assert world.condition("Ready") == ("False", "Paused")
    world.delete_pod("llama-0-worker-1")
    world.settle()
    assert world.status["groups"][0]["revision"] == old
    world.edit(lambda spec: spec.update(rollout={"paused": False}))
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")
    assert world.status["groups"][0]["revision"] != old


def pause_with_an_edit(world: SimulatedWorld) -> None:
    world.edit(
        lambda spec: spec.update(
            rollout={"paused": True}, engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}
        )
    )


def lose_the_leader_set(world: SimulatedWorld) -> None:
    world.remove("StatefulSet", "llama-0-leader")


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((pause_with_an_edit, lose_the_leader_set), id="paused, then lost"),
        pytest.param((lose_the_leader_set, pause_with_an_edit), id="lost, then paused"),
    ],
)
def test_while_paused_a_group_without_its_leader_set_comes_back_on_its_old_revision(
    world: SimulatedWorld, steps: tuple[Callable[[SimulatedWorld], None], ...]
) -> None:
    """Nothing named that revision any more: the set that did is the one that was deleted."""
    old = {pod["metadata"]["labels"][Label.PODS] for pod in world.pods.values()}
    for step in steps:
        step(world)
        world.reconcile()
    world.settle()
    assert {pod["metadata"]["labels"][Label.PODS] for pod in world.pods.values()} == old
    assert world.status["ready"] == "1/1"


def test_groups_are_replaced_one_at_a_time() -> None:
    world = SimulatedWorld({**LLAMA_8B, "replicas": 3}, nodes=3)
    world.settle()
    fewest = [3]

    def count() -> None:
        fewest[0] = min(fewest[0], len(world.pods))

    world.edit(lambda spec: spec.update(engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}))
    world.settle(check=count)
    assert fewest == [2]
    assert len({p["metadata"]["labels"][Label.PODS] for p in world.pods.values()}) == 1


def test_drift_of_a_child_is_repaired_with_the_difference_in_words(world: SimulatedWorld) -> None:
    service = world.get("Service", "llama")
    service["spec"]["ports"][0]["port"] = 9999
    world.touch(service)
    decision = world.decision()
    (stage,) = decision.stages
    assert [(w.name, w.why) for w in stage] == [("llama", "spec.ports[http].port: wanted 8000, found 9999")]


def test_workers_go_soon_once_their_leader_has_ended(world: SimulatedWorld) -> None:
    # They wait in their preStop for rank 0 to finish its requests, a minute at most.
    world.edit(lambda spec: spec.update(engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}))
    world.reconcile()
    world.controllers()
    world.remove("Pod", "llama-0-leader-0")
    world.reconcile()
    assert world.writes[-2:] == ["delete Pod llama-0-worker-1", "status"]


def test_a_spec_that_cannot_be_read_holds_everything_as_it_is(world: SimulatedWorld) -> None:
    client = {"podSelector": {"matchLabels": {"app": "gateway"}}}
    world.edit(lambda spec: spec.update(network={"clients": [client]}))
    world.settle()
    policy = json.dumps(world.get("NetworkPolicy", "llama-0")["spec"])
    world.edit(lambda spec: spec.update(slo={"concurrency": "many"}))
    world.settle()
    assert world.condition("Stalled") == ("True", "InvalidSpec")
    assert world.condition("Available") == ("True", "GroupsReady")
    assert json.dumps(world.get("NetworkPolicy", "llama-0")["spec"]) == policy
    assert world.trace == []
