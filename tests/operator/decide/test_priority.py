"""Priority classes: whose turn comes first, who never gives way, and a preemption that is no failure."""

from typing import Any

import pytest

from invariants import Invariants
from shardwright_operator.decide.admission import RELEASE_S
from shardwright_operator.observe.priorities import Priorities, PriorityBook, project_priority_class
from simulated_world import SimulatedWorld

LLAMA_405B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
}
LLAMA_70B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-70B-Instruct"},
    "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 1},
    "parallelism": {"tensor": 8},
}
HIGH: dict[str, Any] = {"scheduling": {"priorityClassName": "high"}}


def world_of(nodes: int, spec: dict[str, Any], *, name: str) -> SimulatedWorld:
    world = SimulatedWorld(spec, name=name, nodes=nodes)
    world.add_priority_class("high", 1000)
    world.add_priority_class("low", -5)
    return world


def ready(world: SimulatedWorld) -> list[str]:
    names = sorted(body["metadata"]["name"] for body in world.of_kind("ModelDeployment").values())
    return [name for name in names if world.condition("Ready", name) == ("True", "GroupsReady")]


def group_of(world: SimulatedWorld, name: str) -> dict[str, Any]:
    found: dict[str, Any] = world.resource_named(name)["status"]["groups"][0]
    return found


def placed(world: SimulatedWorld) -> dict[str, int]:
    return {
        name: sum("nodeName" in pod["spec"] for pod in pods) for (name, _), pods in world.formations().items()
    }


def test_a_higher_priority_comes_before_an_older_resource() -> None:
    world = world_of(2, LLAMA_405B, name="older")
    world.add_resource("urgent", {**LLAMA_405B, **HIGH})
    world.settle(check=Invariants(world))
    assert (ready(world), placed(world)) == (["urgent"], {"older": 0, "urgent": 2})


def test_what_a_held_group_of_a_higher_priority_waits_for_is_not_taken_by_a_smaller_one() -> None:
    """Nodes come one by one, and the second has half of what it needs when the small one asks."""
    world = world_of(0, {**LLAMA_405B, **HIGH}, name="first")
    world.add_resource("second", {**LLAMA_405B, **HIGH})
    world.settle()
    world.add_resource("small", LLAMA_70B)
    for number in range(3):
        world.add_node(f"node-{number}")
        world.settle(check=Invariants(world))
    # Two nodes for the first, and one on which the second has its first pod.
    assert (ready(world), placed(world)) == (["first"], {"first": 2, "second": 1})
    assert group_of(world, "small")["message"].endswith(
        "0 found, 8 GPUs are missing; models/second, of a higher priority, comes first"
    )
    for number in (3, 4):
        world.add_node(f"node-{number}")
        world.settle(check=Invariants(world))
    assert ready(world) == ["first", "second", "small"]


class WithoutMemory(SimulatedWorld):
    """The scheduler finds no node for the pods of ``first``, and not for want of GPUs."""

    def _takes(self, node: dict[str, Any], pod: dict[str, Any]) -> bool:
        return not pod["metadata"]["name"].startswith("first-") and super()._takes(node, pod)


@pytest.mark.parametrize("replicas", [1, 2])
def test_groups_that_wait_in_vain_keep_no_nodes_from_a_lower_priority(replicas: int) -> None:
    world = WithoutMemory({**LLAMA_405B, **HIGH, "replicas": replicas}, name="first", nodes=1)
    world.add_priority_class("high", 1000)
    world.settle()
    world.run_for(RELEASE_S + 60)
    world.add_resource("small", LLAMA_70B)
    world.run_for(RELEASE_S)
    assert (ready(world), placed(world)) == (["small"], {"first": 0, "small": 1})


def test_a_held_group_of_the_same_priority_is_passed_by_a_smaller_one() -> None:
    world = held(second={}, small={})
    assert "small" in placed(world)


def test_a_held_group_of_a_higher_priority_is_not_passed() -> None:
    world = held(second=HIGH, small={})
    assert "small" not in placed(world)


def held(*, second: dict[str, Any], small: dict[str, Any]) -> SimulatedWorld:
    """The first cannot use the free node, for want of memory; the second is held; a smaller one comes."""
    world = world_of(1, {**LLAMA_405B, **HIGH}, name="first")
    world.refuses = lambda pod: (
        "0/1 nodes are available: 1 Insufficient memory." if pod["metadata"]["name"][0] == "f" else ""
    )
    world.settle()
    world.add_resource("second", {**LLAMA_405B, **second})
    world.settle()
    world.run_for(2 * RELEASE_S)
    world.add_resource("small", {**LLAMA_70B, **small})
    world.run_for(60)
    return world


def test_a_half_of_a_higher_priority_is_not_given_back_to_a_lower_one() -> None:
    world = world_of(1, {**LLAMA_405B, **HIGH}, name="half")
    world.settle()
    world.add_resource("small", LLAMA_70B)
    world.run_for(3 * RELEASE_S)
    assert placed(world) == {"half": 1}


def test_a_half_is_given_back_to_an_equal_one() -> None:
    world = world_of(1, {**LLAMA_405B, **HIGH}, name="half")
    world.settle()
    world.add_resource("small", {**LLAMA_70B, **HIGH})
    world.run_for(3 * RELEASE_S)
    assert ready(world) == ["small"]


def test_the_first_of_a_higher_priority_is_made_so_that_the_scheduler_can_preempt() -> None:
    world = world_of(2, LLAMA_405B, name="older")
    world.settle()
    world.add_resource("urgent", {**LLAMA_405B, **HIGH})
    world.settle()
    assert sorted(world.pods) == [
        "older-0-leader-0",
        "older-0-worker-1",
        "urgent-0-leader-0",
        "urgent-0-worker-1",
    ]


def test_a_preempted_group_goes_whole_waits_for_room_and_has_not_failed() -> None:
    world = world_of(2, LLAMA_405B, name="older")
    world.settle()
    world.add_resource("urgent", {**LLAMA_405B, **HIGH})
    world.settle()
    world.preempt("older-0-worker-1")
    world.settle(check=Invariants(world))
    # It is first in the queue again: its pods show an autoscaler what is missing.
    assert (ready(world), placed(world)) == (["urgent"], {"older": 0, "urgent": 2})
    group = group_of(world, "older")
    assert (group["phase"], group["reason"], group["restarts"]) == ("Pending", "WaitingForCapacity", 0)
    assert "firstFailure" not in group
    (told,) = (e.message for e in world.events if e.reason == "Preempted")
    assert told == (
        "group 0: rank 1 (older-0-worker-1) is terminating: a pod of a higher priority took its place "
        "on node node-1; the whole group waits for room"
    )
    world.edit(lambda spec: spec.update(replicas=0), name="urgent")
    world.settle()
    assert "older" in ready(world)


def test_a_preemption_that_is_learnt_after_the_loss_is_not_counted_either() -> None:
    world = world_of(2, LLAMA_405B, name="llama")
    world.settle()
    pod = world.get("Pod", "llama-0-worker-1")
    world.delete_pod("llama-0-worker-1")
    world.reconcile()
    assert group_of(world, "llama")["restarts"] == 1
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    pod["status"]["conditions"].append(condition)
    world.touch(pod)
    world.settle()
    group = group_of(world, "llama")
    assert (group["restarts"], "firstFailure" in group) == (0, False)


def test_a_preempted_group_of_one_pod_is_not_counted() -> None:
    world = world_of(1, LLAMA_70B, name="small")
    world.settle()
    world.preempt("small-0-leader-0")
    world.settle()
    group = group_of(world, "small")
    assert (ready(world), group["restarts"], "firstFailure" in group) == (["small"], 0, False)


def test_a_class_that_is_not_there_is_named_before_anything_is_made() -> None:
    spec = {**LLAMA_405B, "scheduling": {"priorityClassName": "hihg"}}
    world = world_of(2, spec, name="llama")
    world.settle()
    assert world.condition("Stalled") == ("True", "InvalidSpec")
    assert world.status["conditions"][0]["message"] == (
        "spec.scheduling.priorityClassName is 'hihg', but the cluster has no such PriorityClass; "
        "create it, or name one of: high, low."
    )
    assert world.pods == {}
    world.add_priority_class("hihg", 7)
    world.settle()
    assert ready(world) == ["llama"]


def test_a_class_that_goes_costs_no_running_group() -> None:
    world = world_of(2, {**LLAMA_405B, **HIGH}, name="llama")
    world.settle()
    world.remove("PriorityClass", "high")
    world.settle()
    assert (ready(world), len(world.trace)) == (["llama"], 2)


@pytest.mark.parametrize(
    ("classes", "name", "value"),
    [
        pytest.param({}, "any", 0, id="nothing is known"),
        pytest.param({"high": (9, False)}, "high", 9, id="named"),
        pytest.param({"high": (9, False)}, None, 0, id="no class, no default"),
        pytest.param({"high": (9, False), "usual": (3, True)}, None, 3, id="no class, a default"),
        pytest.param({"a": (5, True), "b": (2, True)}, None, 2, id="of two defaults the lower"),
    ],
)
def test_priority_of_a_class(classes: dict[str, tuple[int, bool]], name: str | None, value: int) -> None:
    book = PriorityBook()
    for number, (class_name, (worth, is_default)) in enumerate(classes.items()):
        metadata = {"name": class_name, "uid": class_name, "resourceVersion": str(number + 1)}
        body = {"metadata": metadata, "value": worth, "globalDefault": is_default}
        book.put(project_priority_class(body), deleted=False)
    assert book.current.of(name) == value


def test_a_class_that_went_is_forgotten_and_one_of_its_name_stays() -> None:
    book = PriorityBook()
    former = {"metadata": {"name": "high", "uid": "1", "resourceVersion": "5"}, "value": 1}
    present = {"metadata": {"name": "high", "uid": "2", "resourceVersion": "9"}, "value": 2}
    for body in (former, present):
        assert book.put(project_priority_class(body), deleted=False)
    assert not book.put(project_priority_class(former), deleted=True)
    assert book.current == Priorities(values={"high": 2})
    assert book.put(project_priority_class(present), deleted=True)
    assert book.current == Priorities()
