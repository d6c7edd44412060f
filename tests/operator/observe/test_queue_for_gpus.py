"""Whoever waits behind a resource looks again as soon as that one wants less, though no GPU came free."""

from collections.abc import Callable
from typing import Any

import pytest

from shardwright_operator.observe.views import Key
from simulated_world import NAMESPACE, SimulatedWorld

LLAMA_405B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
}
ALPHA, BETA = Key(NAMESPACE, "alpha"), Key(NAMESPACE, "beta")


@pytest.fixture
def world() -> SimulatedWorld:
    """``beta`` waits behind ``alpha``, none of whose pods has a node."""
    made = SimulatedWorld(LLAMA_405B, name="alpha", nodes=3)
    made.add_resource("beta", LLAMA_405B)
    for key in (ALPHA, BETA):
        made.reconcile(key)
    assert made.condition("Ready", "beta") == ("False", "WaitingForCapacity")
    made.decision(BETA)
    return made


def deleted(world: SimulatedWorld) -> frozenset[Key]:
    return world.store.put(world.resource_named("alpha"), deleted=True)


def going(world: SimulatedWorld) -> frozenset[Key]:
    body = world.resource_named("alpha")
    metadata = {**body["metadata"], "resourceVersion": "9999", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    return world.store.put({**body, "metadata": metadata}, deleted=False)


def set_deleted(world: SimulatedWorld) -> frozenset[Key]:
    return world.store.put(world.get("StatefulSet", "alpha-0-worker"), deleted=True)


def set_emptied(world: SimulatedWorld) -> frozenset[Key]:
    body = world.get("StatefulSet", "alpha-0-worker")
    metadata = {**body["metadata"], "resourceVersion": "9999"}
    return world.store.put(
        {**body, "metadata": metadata, "spec": {**body["spec"], "replicas": 0}}, deleted=False
    )


@pytest.mark.parametrize("change", [deleted, going, set_deleted, set_emptied])
def test_less_demand_wakes_who_waits_behind_it(
    world: SimulatedWorld, change: Callable[[SimulatedWorld], frozenset[Key]]
) -> None:
    assert change(world) == {ALPHA, BETA}


def test_equal_demand_wakes_nobody(world: SimulatedWorld) -> None:
    body = world.get("StatefulSet", "alpha-0-worker")
    metadata = {**body["metadata"], "resourceVersion": "9999", "annotations": {"a": "b"}}
    assert world.store.put({**body, "metadata": metadata}, deleted=False) == {ALPHA}


def test_a_waking_is_seen_by_a_pass_that_finds_out_meanwhile_that_it_must_wait(world: SimulatedWorld) -> None:
    before = world.store.wakings
    set_deleted(world)
    assert (world.store.wakings - before, world.store.waits(BETA), world.store.waits(ALPHA)) == (
        *(1, True),
        False,
    )


def test_a_group_that_is_being_made_counts_as_far_as_its_pods_have_no_node() -> None:
    world = SimulatedWorld(LLAMA_405B, name="alpha", nodes=2)
    world.add_resource("beta", LLAMA_405B)
    starts = world.decision(ALPHA).starts
    assert [(d.key, d.group, d.need.pods, d.admitted) for d in starts] == [(ALPHA, 0, 2, True)]
    world.store.demands.starting(ALPHA, starts)
    wanted = world.decision(BETA)
    assert (wanted.starts, wanted.status["conditions"][0]["reason"]) == ((), "WaitingForCapacity")
    world.reconcile(ALPHA)
    world.controllers()
    world.kubelets()
    assert world.store.observe(BETA).capacity.demands == ()
    world.store.demands.starting(ALPHA, ())
    assert world.store.observe(BETA).capacity.demands == ()
