"""Groups that a gang scheduler places: an object for each attempt, all pods at once, nothing held back."""

from collections.abc import Mapping
from typing import Any

import pytest

from invariants import Invariants
from shardwright_operator.api.gang import GANG_APIS, Gang
from shardwright_operator.decide.admission import RELEASE_S
from shardwright_operator.observe.conditions import condition_of
from shardwright_operator.observe.views import Key
from simulated_world import NAMESPACE, SimulatedWorld

LLAMA_405B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
}
BY_KUBERNETES: dict[str, Any] = {"scheduling": {"gang": "Kubernetes"}}
BY_VOLCANO: dict[str, Any] = {"scheduling": {"gang": "Volcano"}}
BY_KUEUE: dict[str, Any] = {"scheduling": {"gang": "Kueue", "queueName": "team-a"}}
ABSENT = {Gang.KUBERNETES: "the cluster does not serve PodGroup: turn it on"}


def world_of(*, nodes: int = 2, **more: Any) -> SimulatedWorld:
    return SimulatedWorld({**LLAMA_405B, **BY_KUBERNETES, **more}, nodes=nodes)


def gangs(world: SimulatedWorld) -> list[str]:
    """Kinds and names of what stands for groups at gang schedulers."""
    kinds = (GANG_APIS[gang].kind for gang in Gang)
    return [f"{kind} {name}" for kind in kinds for name in world.of_kind(kind)]


def pod_group(world: SimulatedWorld, name: str = "llama-0") -> Mapping[str, Any]:
    return world.get(GANG_APIS[Gang.KUBERNETES].kind, name)


def gang_of(world: SimulatedWorld, gang: str) -> None:
    def change(spec: dict[str, Any]) -> None:
        spec["scheduling"] = {"gang": gang}

    world.edit(change)


def test_the_object_stands_before_the_sets_and_the_pods_name_it() -> None:
    world = world_of()
    world.settle(check=Invariants(world))
    assert world.condition("Ready") == ("True", "GroupsReady")
    applied = [write for write in world.writes if "PodGroup" in write or "StatefulSet" in write]
    assert applied[:3] == [
        "apply PodGroup.scheduling.k8s.io llama-0",
        "apply StatefulSet llama-0-leader",
        "apply StatefulSet llama-0-worker",
    ]
    assert [pod["spec"]["schedulingGroup"] for pod in world.pods.values()] == [
        {"podGroupName": "llama-0"}
    ] * 2


@pytest.mark.parametrize("gang", [BY_KUBERNETES, BY_VOLCANO, BY_KUEUE], ids=list(Gang))
def test_an_unchanged_world_needs_no_write(gang: dict[str, Any]) -> None:
    world = world_of(**gang)
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")
    world.writes.clear()
    world.restart_operator()
    world.settle()
    assert world.writes == []


def test_of_two_that_want_the_same_nodes_one_runs_whole_and_the_other_waits_whole() -> None:
    world = SimulatedWorld({**LLAMA_405B, **BY_KUBERNETES}, name="alpha", nodes=3)
    world.add_resource("beta", {**LLAMA_405B, **BY_KUBERNETES})
    for name in ("alpha", "beta"):
        world.reconcile(Key(NAMESPACE, name))
    # Nobody is held back: the scheduler sees all pods, and with it a cluster autoscaler.
    assert len(world.of_kind("StatefulSet")) == 4
    world.run_for(3 * RELEASE_S, check=Invariants(world))
    placed = {
        name: sum("nodeName" in pod["spec"] for pod in pods) for (name, _), pods in world.formations().items()
    }
    assert placed == {"alpha": 2, "beta": 0}
    assert world.condition("Ready", "beta") == ("False", "WaitingForCapacity")
    assert "2 nodes with 8 free GPUs (H100-SXM-80GB) each; 1 found, 8 GPUs are missing" in str(
        world.resource_named("beta")["status"]["conditions"][0]["message"]
    )
    world.add_node("node-9")
    world.settle(check=Invariants(world))
    assert world.condition("Ready", "beta") == ("True", "GroupsReady")


def test_each_attempt_has_an_object_of_its_own() -> None:
    world = world_of()
    world.settle()
    first = pod_group(world)["metadata"]["uid"]
    world.delete_pod("llama-0-worker-1")
    world.settle(check=Invariants(world))
    assert world.condition("Ready") == ("True", "GroupsReady")
    assert pod_group(world)["metadata"]["uid"] != first
    assert gangs(world) == ["PodGroup.scheduling.k8s.io llama-0"]


def test_an_object_on_its_way_out_is_waited_for() -> None:
    world = world_of()
    world.settle()
    world.delete_pod("llama-0-worker-1")
    world.step()
    group = pod_group(world)
    assert "deletionTimestamp" in group["metadata"]
    for name in list(world.pods):
        world.remove("Pod", name)
    for body in world.of_kind("StatefulSet").values():
        world._sync(body)
    world.reconcile()
    state = world.status["groups"][0]
    assert state["message"] == "waiting for PodGroup.scheduling.k8s.io llama-0 to go"
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")


@pytest.mark.parametrize("writes", range(1, 9))
def test_an_operator_that_dies_between_any_two_writes_is_succeeded(writes: int) -> None:
    world = world_of()
    world.reconcile(die_after=writes)
    world.restart_operator()
    world.settle(check=Invariants(world))
    assert world.condition("Ready") == ("True", "GroupsReady")
    assert gangs(world) == ["PodGroup.scheduling.k8s.io llama-0"]


def test_an_object_that_somebody_deletes_comes_back() -> None:
    world = world_of()
    world.settle()
    world.remove(GANG_APIS[Gang.KUBERNETES].kind, "llama-0")
    world.settle()
    assert gangs(world) == ["PodGroup.scheduling.k8s.io llama-0"]
    assert world.status["groups"][0].get("restarts", 0) == 0


def test_another_scheduler_gets_an_object_of_its_own_kind() -> None:
    world = world_of()
    world.settle()
    gang_of(world, "Volcano")
    world.settle(check=Invariants(world))
    assert world.condition("Ready") == ("True", "GroupsReady")
    assert gangs(world) == ["PodGroup.scheduling.volcano.sh llama-0"]
    assert {pod["spec"]["schedulerName"] for pod in world.pods.values()} == {"volcano"}


def test_without_the_wish_no_object_is_left() -> None:
    world = world_of()
    world.settle()
    world.edit(lambda spec: spec.pop("scheduling"))
    world.settle(check=Invariants(world))
    assert world.condition("Ready") == ("True", "GroupsReady")
    assert gangs(world) == []


def test_the_object_goes_with_its_group() -> None:
    world = world_of(nodes=4, replicas=2)
    world.settle()
    assert len(gangs(world)) == 2
    world.edit(lambda spec: spec.update(replicas=1))
    world.settle()
    assert gangs(world) == ["PodGroup.scheduling.k8s.io llama-0"]
    world.edit(lambda spec: spec.update(replicas=0))
    world.settle()
    assert gangs(world) == []


def test_a_scheduler_that_is_not_there_is_one_clear_condition() -> None:
    world = SimulatedWorld({**LLAMA_405B, **BY_KUBERNETES}, gang_obstacles=ABSENT)
    world.settle()
    message = "spec.scheduling.gang is Kubernetes, but the cluster does not serve PodGroup: turn it on"
    for type_ in ("Ready", "Stalled"):
        found = condition_of(world.status, type_)
        assert (found["reason"], found["message"]) == ("GangUnavailable", message)
    assert world.of_kind("StatefulSet") == {}
    world.writes.clear()
    world.settle()
    assert world.writes == []
    world.gang_obstacles = {}
    world.restart_operator()
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")
    assert world.condition("Stalled") is None


def test_what_serves_is_not_taken_down_for_a_scheduler_that_is_not_there() -> None:
    world = SimulatedWorld(LLAMA_405B, gang_obstacles=ABSENT)
    world.settle()
    gang_of(world, "Kubernetes")
    world.settle(check=Invariants(world, fewest=1))
    assert world.condition("Ready") == ("False", "GangUnavailable")


def test_what_serves_is_left_alone_when_its_scheduler_can_no_longer_be_asked() -> None:
    world = world_of()
    world.settle()
    world.gang_obstacles = ABSENT
    world.restart_operator()
    world.writes.clear()
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")
    assert world.writes == []
