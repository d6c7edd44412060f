"""A plan stays while its inputs do; what it says of the network follows the spec."""

from typing import Any

from simulated_world import SimulatedWorld

LLAMA_405B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "slo": {"concurrency": 32, "timePerOutputToken": "150ms", "timeToFirstToken": "30s"},
}
TCP: dict[str, Any] = {"profile": "tcp"}
ROCE: dict[str, Any] = {"profile": "roce", "rdmaResource": "rdma/hca"}


def start(network: dict[str, Any]) -> SimulatedWorld:
    world = SimulatedWorld({**LLAMA_405B, "network": network})
    world.settle()
    return world


def told(world: SimulatedWorld) -> list[str]:
    """What the plan warns of that names RDMA."""
    return [text for text in world.status["plan"]["warnings"] if "RDMA" in text]


def test_an_edit_of_the_network_alone_changes_what_the_plan_says_of_it() -> None:
    absent, assumed = told(start(TCP)), told(start(ROCE))
    assert absent[0].startswith("RDMA is absent")
    assert assumed == ["The nodes' network rate is not known; 400 Gbit/s per node with RDMA is assumed."]

    world = start(TCP)
    world.edit(lambda spec: spec.update(network=ROCE))
    world.settle()
    assert told(world) == assumed
    world.edit(lambda spec: spec.update(network=TCP))
    world.settle()
    assert told(world) == absent


def test_a_profile_that_says_nothing_of_rdma_keeps_the_plan() -> None:
    world = start({})
    plan = world.status["plan"]
    world.edit(lambda spec: spec.update(network={"profile": "auto", "socketInterface": "eth1"}))
    world.settle()
    assert world.status["plan"] == plan
