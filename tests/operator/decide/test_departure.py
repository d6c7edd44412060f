"""A group that nobody wants any more is no reason to be unready, and yet the resource is not settled."""

from typing import Any

import pytest

from simulated_world import SimulatedWorld

LLAMA_8B: dict[str, Any] = {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}}


@pytest.mark.parametrize(("replicas", "ready"), [(0, "ScaledToZero"), (1, "GroupsReady")])
def test_reconciling_until_the_last_pod_of_the_others_is_gone(replicas: int, ready: str) -> None:
    world = SimulatedWorld({**LLAMA_8B, "replicas": 2}, nodes=2)
    world.settle()
    world.edit(lambda spec: spec.update(replicas=replicas))
    world.step()
    assert world.condition("Ready") == ("True", ready)
    assert world.condition("Reconciling") == ("True", "ScalingDown")
    world.settle()
    assert world.condition("Reconciling") is None
