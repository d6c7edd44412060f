"""A plan stays while its inputs do; what it says of the network follows the spec."""

from typing import Any

import pytest

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


def uids(world: SimulatedWorld) -> set[str]:
    return {pod["metadata"]["uid"] for pod in world.pods.values()}


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


GPT_OSS: dict[str, Any] = {
    "model": {"name": "openai/gpt-oss-120b"},
    "workload": {"inputTokens": 60000, "outputTokens": 1000},
    "slo": {"concurrency": 64},
}
WITHOUT_WINDOWS = {"extraArgs": ["--disable-hybrid-kv-cache-manager"]}


def settled_by_an_older_operator(monkeypatch: pytest.MonkeyPatch) -> SimulatedWorld:
    """A world whose plan was made by an operator that did not know the argument."""
    world = SimulatedWorld({**GPT_OSS, "engine": WITHOUT_WINDOWS})
    with monkeypatch.context() as older:
        older.setattr("shardwright_operator.api.plan_request.switched_on", lambda *_: False)
        world.settle()
    return world


def test_a_newer_operator_s_account_of_windows_moves_no_group_that_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = settled_by_an_older_operator(monkeypatch)
    before = (world.status["revision"], world.status["plan"], uids(world))
    world.writes.clear()

    world.restart_operator()
    world.settle()
    assert (world.status["revision"], world.status["plan"], uids(world), world.writes) == (*before, [])

    fresh = SimulatedWorld({**GPT_OSS, "engine": WITHOUT_WINDOWS})
    fresh.settle()
    assert fresh.status["plan"] != before[1], "else nothing was shown"


def test_an_older_account_of_windows_stays_through_an_edit_of_something_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = settled_by_an_older_operator(monkeypatch)
    plan = world.status["plan"]

    world.edit(lambda spec: spec["engine"].update(env=[{"name": "A", "value": "b"}]))
    world.settle()
    assert world.status["plan"] == plan


def test_windows_that_an_edit_gives_up_are_planned_for() -> None:
    world = SimulatedWorld(GPT_OSS)
    world.settle()
    plan = world.status["plan"]

    world.edit(lambda spec: spec.update(engine=WITHOUT_WINDOWS))
    world.settle()
    assert world.status["plan"] != plan
