"""More groups, fewer groups, none, and the same again."""

from typing import Any

import pytest

from invariants import Invariants
from shardwright_operator.api.constants import Label
from simulated_world import SimulatedWorld

LLAMA_405B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "slo": {"concurrency": 32, "timePerOutputToken": "150ms", "timeToFirstToken": "30s"},
}


def start(replicas: int, *, nodes: int = 8) -> SimulatedWorld:
    world = SimulatedWorld({**LLAMA_405B, "replicas": replicas}, nodes=nodes)
    world.settle()
    world.trace.clear()
    world.writes.clear()
    world.events.clear()
    return world


def groups(world: SimulatedWorld) -> list[str]:
    return [group for _, group in world.formations()]


def scale(world: SimulatedWorld, replicas: int) -> None:
    world.edit(lambda spec: spec.update(replicas=replicas))


def test_groups_are_added_and_none_is_touched() -> None:
    world = start(1)
    scale(world, 3)
    world.settle(check=Invariants(world, fewest=1))
    assert groups(world) == ["0", "1", "2"]
    assert not any(name.startswith("llama-0-") for name in world.trace)
    assert world.status["replicas"] == 3


def test_the_newest_group_goes_and_leaves_nothing() -> None:
    world = start(3)
    scale(world, 2)
    world.settle(check=Invariants(world, fewest=2))
    assert groups(world) == ["0", "1"]
    assert not [name for _, name in world.objects if name.startswith("llama-2-")]
    assert [(event.reason, event.message) for event in world.events] == [
        ("ScalingDown", "group 2 is removed")
    ]
    assert world.condition("Ready") == ("True", "GroupsReady")


def test_a_group_that_leaves_drains_before_its_children_go() -> None:
    world = start(2)
    scale(world, 1)
    world.step()
    assert world.writes[:2] == ["apply StatefulSet llama-1-leader", "apply StatefulSet llama-1-worker"]
    leader = world.get("Pod", "llama-1-leader-0") if ("Pod", "llama-1-leader-0") in world.objects else None
    assert leader is None or "deletionTimestamp" in leader["metadata"]
    assert [g["phase"] for g in world.status["groups"]] == ["Ready", "Terminating"]
    assert ("Service", "llama-1-ranks") in world.objects
    world.settle()
    assert ("Service", "llama-1-ranks") not in world.objects


def test_a_broken_group_goes_before_the_newest() -> None:
    world = start(3)
    world.course = lambda pod: "unready" if pod["metadata"]["labels"][Label.GROUP_INDEX] == "1" else ""
    world.delete_pod("llama-1-worker-1")
    world.run_for(60)
    scale(world, 2)
    world.settle(check=Invariants(world, fewest=2))
    assert groups(world) == ["0", "2"]


def test_an_index_is_used_again_only_when_nothing_of_the_old_group_is_left() -> None:
    world = start(2)
    scale(world, 1)
    world.step()
    assert ("StatefulSet", "llama-1-leader") in world.objects
    scale(world, 2)
    world.settle(check=Invariants(world, fewest=1))
    # Group 1 was on its way out and is not called back: another index takes its place.
    assert groups(world) == ["0", "2"]
    scale(world, 3)
    world.settle(check=Invariants(world, fewest=2))
    assert groups(world) == ["0", "1", "2"]


def test_to_zero_and_back() -> None:
    world = start(2)
    plan = world.status["plan"]
    scale(world, 0)
    world.settle()
    assert (groups(world), sorted(world.of_kind("StatefulSet"))) == ([], [])
    assert world.condition("Ready") == ("True", "ScaledToZero")
    assert world.status["ready"] == "0/0"
    scale(world, 2)
    world.settle()
    assert groups(world) == ["0", "1"]
    assert (world.status["plan"], len(world.of_kind("ControllerRevision"))) == (plan, 1)


@pytest.mark.parametrize("writes", range(10))
def test_an_operator_that_dies_while_a_group_leaves_goes_on(writes: int) -> None:
    world = start(2)
    check = Invariants(world, fewest=1)
    scale(world, 1)
    for _ in range(3):
        world.reconcile(die_after=writes)
        world.controllers()
        world.kubelets()
        world.restart_operator()
        check()
    world.settle(check=check)
    assert groups(world) == ["0"]
    # A revision's name goes on with a hash, which may begin with 1 as well.
    assert not [name for _, name in world.objects if f"{name}-".startswith("llama-1-")]


def test_a_leader_set_deleted_by_somebody_takes_no_other_group_s_place() -> None:
    world = start(3)
    world.remove("StatefulSet", "llama-1-leader")
    world.settle(check=Invariants(world, fewest=2))
    assert groups(world) == ["0", "1", "2"]


def test_numbers_that_go_up_and_down_all_the_time_settle() -> None:
    world = start(2)
    check = Invariants(world, fewest=1)
    for replicas in (4, 1, 3, 2, 4, 1, 2):
        scale(world, replicas)
        world.step(check=check)
    world.settle(check=check)
    assert (len(groups(world)), world.status["ready"]) == (2, "2/2")
    world.writes.clear()
    world.settle()
    assert world.writes == []
