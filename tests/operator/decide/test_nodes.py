"""Nodes that are cordoned, silent or gone: groups move as a whole, within the budget, if they can."""

from typing import Any

import pytest

from invariants import Invariants
from simulated_world import SimulatedWorld

LLAMA_405B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "slo": {"concurrency": 32, "timePerOutputToken": "150ms", "timeToFirstToken": "30s"},
}


def start(replicas: int, nodes: int, rollout: dict[str, Any] | None = None) -> SimulatedWorld:
    world = SimulatedWorld({**LLAMA_405B, "replicas": replicas, "rollout": rollout or {}}, nodes=nodes)
    world.settle()
    world.trace.clear()
    world.events.clear()
    return world


def nodes_of(world: SimulatedWorld, group: int = 0) -> list[str]:
    return sorted(world.status["groups"][group]["nodes"])


def message_of(world: SimulatedWorld, group: int = 0) -> str:
    return str(world.status["groups"][group]["message"])


def test_a_group_moves_off_a_cordoned_node_as_a_whole() -> None:
    world = start(1, 4)
    world.cordon(nodes_of(world)[0])
    world.settle(check=Invariants(world))
    assert nodes_of(world) == ["node-1", "node-2"]
    assert world.status["groups"][0]["restarts"] == 0
    assert [(e.reason, e.message) for e in world.events] == [
        ("Draining", "group 0 goes down to start again: node node-0 is cordoned"),
        ("GroupsReady", "the group serves requests"),
    ]


def test_a_drained_group_stays_away_until_the_drain_has_asked_again() -> None:
    """``kubectl drain`` asks every 5 s, by the name that the new pod has as well."""
    world = start(1, 4)
    world.cordon("node-0")
    world.step()
    left_at = world.now
    while not world.trace:
        assert world.status["groups"][0]["reason"] == "Draining"
        world.step()
    assert (world.now - left_at).total_seconds() > 6


def test_nobody_takes_the_room_of_a_group_that_is_on_its_way_to_it() -> None:
    world = start(1, 4)
    world.cordon("node-0")
    world.step()
    world.add_resource("later", {**LLAMA_405B, "hardware": {"maxNodes": 2}})
    world.settle(check=Invariants(world))
    assert nodes_of(world) == ["node-1", "node-2"]
    assert world.condition("Ready", "later") == ("False", "WaitingForCapacity")


def test_a_group_that_fits_nowhere_else_stays_and_says_what_is_missing() -> None:
    world = start(1, 2)
    world.cordon("node-0")
    world.settle()
    assert world.trace == []
    assert message_of(world) == (
        "serves requests; node node-0 is cordoned: no room elsewhere: it needs 2 nodes with 8 free GPUs "
        "(H100-SXM-80GB) each; 0 found, 16 GPUs are missing"
    )
    assert world.condition("Ready") == ("True", "GroupsReady")
    world.add_node("node-9")
    world.settle()
    assert nodes_of(world) == ["node-1", "node-9"]


def test_a_stranger_s_pods_leave_no_room() -> None:
    world = start(1, 3)
    world.occupy("node-2", gpus=1)
    world.cordon("node-0")
    world.settle()
    assert world.trace == []
    world.remove("Pod", "stranger")
    world.settle()
    assert nodes_of(world) == ["node-1", "node-2"]


def test_block_leaves_the_group_to_its_disruption_budget() -> None:
    world = start(1, 4, {"onDrain": "Block"})
    world.cordon("node-0")
    world.settle()
    assert world.trace == []
    assert message_of(world).endswith("node node-0 is cordoned: spec.rollout.onDrain is Block")


@pytest.mark.parametrize(
    ("rollout", "fewest"),
    [
        pytest.param({}, 2, id="one at a time"),
        pytest.param({"maxUnavailable": 2}, 1, id="two at a time"),
        pytest.param({"maxUnavailable": 9}, 1, id="never all"),
        pytest.param({"paused": True}, 2, id="while paused"),
    ],
)
def test_several_nodes_drained_at_once_move_group_by_group(rollout: dict[str, Any], fewest: int) -> None:
    world = start(3, 12, rollout)
    for node in range(6):
        world.cordon(f"node-{node}")
    check = Invariants(world, fewest=fewest)
    world.settle(check=check)
    used = {node for group in world.status["groups"] for node in group["nodes"]}
    assert used == {f"node-{node}" for node in range(6, 12)}
    assert check.lowest == fewest
    assert world.status["ready"] == "3/3"


def test_two_groups_do_not_both_move_into_the_same_room() -> None:
    world = start(2, 6, {"maxUnavailable": 2})
    before = nodes_of(world, 1)
    world.occupy("node-5", name="one")
    world.occupy("node-4", gpus=4, name="two")
    for node in range(4):
        world.cordon(f"node-{node}")
    world.add_node("node-8")
    world.add_node("node-9")
    world.settle(check=Invariants(world, fewest=1))
    assert nodes_of(world, 0) == ["node-8", "node-9"]
    assert nodes_of(world, 1) == before
    assert world.status["ready"] == "2/2"


def test_a_node_that_is_uncordoned_again_keeps_its_group() -> None:
    world = start(1, 2)
    world.cordon("node-0")
    world.settle()
    world.cordon("node-0", cordoned=False)
    world.settle()
    assert (world.trace, message_of(world)) == ([], "serves requests")


def test_a_node_that_goes_silent_is_named() -> None:
    world = start(1, 2)
    node = world.get("Node", "node-1")
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    world.touch(node)
    pod = next(p for p in world.pods.values() if p["spec"]["nodeName"] == "node-1")
    pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    world.touch(pod)
    world.reconcile()
    group = world.status["groups"][0]
    assert (group["phase"], group["reason"]) == ("Degraded", "GroupDegraded")
    assert group["message"] == "rank 1 is not ready any more (node node-1)"


def test_a_pod_that_kubernetes_took_off_a_lost_node_names_it() -> None:
    world = start(1, 3)
    pod = world.get("Pod", "llama-0-worker-1")
    pod["status"]["conditions"].append(
        {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    )
    node = world.get("Node", pod["spec"]["nodeName"])
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    world.touch(node)
    world.delete_pod("llama-0-worker-1")
    world.settle()
    failure = world.status["groups"][0]["firstFailure"]
    assert (failure["reason"], failure["node"]) == ("NodeLost", node["metadata"]["name"])
    assert world.status["ready"] == "1/1"


def test_prices_turn_the_choice_between_pools_to_the_cheaper_one() -> None:
    spec = {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}}
    chosen = {}
    for dear in ("L40S", "H100-SXM-80GB"):
        prices = {"L40S": 1.0, "H100-SXM-80GB": 1.0, dear: 9.0}
        world = SimulatedWorld({**spec, "hardware": {"gpuHourPrices": prices}}, nodes=1)
        world.add_node("cheap-0", "NVIDIA-L40S")
        world.settle()
        chosen[dear] = world.status["plan"]["gpu"]
    assert chosen == {"L40S": "H100-SXM-80GB", "H100-SXM-80GB": "L40S"}


def test_a_price_of_an_unknown_gpu_is_refused_by_name() -> None:
    hardware = {"gpuHourPrices": {"TPU-v5": 1.0}}
    world = SimulatedWorld({"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}, "hardware": hardware})
    world.reconcile()
    assert world.condition("Stalled") == ("True", "UnknownGPU")
    assert "spec.hardware.gpuHourPrices is 'TPU-v5'" in world.status["conditions"][0]["message"]


def test_a_leader_between_its_two_probes_is_still_coming_up() -> None:
    world = start(1, 2)
    leader = world.get("Pod", "llama-0-leader-0")
    ready, (container,) = leader["status"]["conditions"], leader["status"]["containerStatuses"]
    world.status["groups"][0]["phase"] = "Starting"
    world.touch(world.resource)
    seen = []
    for started, conditions in ((False, []), (True, []), (True, ready), (True, [])):
        container["started"], leader["status"]["conditions"] = started, conditions
        world.touch(leader)
        world.reconcile()
        seen.append(world.status["groups"][0]["phase"])
    assert seen == ["Forming", "Forming", "Ready", "Degraded"]
