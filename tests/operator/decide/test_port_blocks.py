"""Blocks of ports on the nodes' network: one for each resource, kept over edits and restarts."""

from typing import Any

import pytest

from shardwright_operator.api.constants import Annotation
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.ports import BLOCKS, FIRST_PORT, LAST_PORT, RANDOM_PORTS, free_block
from simulated_world import NAMESPACE, SimulatedWorld

LLAMA_8B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
    "network": {"hostNetwork": True},
}


def template(world: SimulatedWorld, name: str = "llama") -> dict[str, Any]:
    found: dict[str, Any] = world.objects["StatefulSet", f"{name}-0-leader"]["spec"]["template"]
    return found


def block(world: SimulatedWorld, name: str = "llama") -> int:
    return int(template(world, name)["metadata"]["annotations"][Annotation.PORT_BLOCK])


def host_ports(world: SimulatedWorld, name: str = "llama") -> set[int]:
    (engine,) = template(world, name)["spec"]["containers"]
    return {port["hostPort"] for port in engine["ports"]}


def test_blocks_lie_below_the_ports_that_nodes_give_to_others() -> None:
    assert (FIRST_PORT, LAST_PORT) == (20_000, 29_983)
    assert LAST_PORT < 30_000 < RANDOM_PORTS.start, "NodePorts begin at 30000"


def test_no_two_resources_have_the_same_block() -> None:
    """More of them than would find different places by chance."""
    world = SimulatedWorld(LLAMA_8B, nodes=6)
    names = ["llama", *(f"other-{number}" for number in range(40))]
    for name in names[1:]:
        world.add_resource(name, LLAMA_8B)
    world.settle(limit=120)
    ports = [host_ports(world, name) for name in names]
    assert len({block(world, name) for name in names}) == len(names)
    assert sum(map(len, ports)) == len(set().union(*ports))


def test_a_block_stays_over_an_edit_and_another_operator() -> None:
    world = SimulatedWorld(LLAMA_8B)
    world.settle()
    first = block(world)
    world.restart_operator()
    world.edit(lambda spec: spec.update(engine={"env": [{"name": "A", "value": "b"}]}))
    world.settle()
    assert block(world) == first
    assert len(world.of_kind("ControllerRevision")) == 2


def test_a_block_is_drawn_again_when_another_resource_has_it() -> None:
    owner = Owner(name="llama", namespace=NAMESPACE, uid="u")
    first = free_block(owner, kept=None, taken=())
    assert free_block(owner, kept=first, taken=()) == first
    assert free_block(owner, kept=first, taken={first}) == (first + 1) % BLOCKS


def test_without_a_free_block_the_spec_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from shardwright_operator.build import ports

    monkeypatch.setattr(ports, "BLOCKS", 1)
    world = SimulatedWorld(LLAMA_8B)
    world.settle()
    world.add_resource("other", LLAMA_8B)
    world.settle()
    assert world.condition("Stalled", "other") == ("True", "InvalidSpec")
    assert world.message("Stalled", "other").startswith(
        "spec.network.hostNetwork is true, but all 1 blocks of host ports"
    )
    assert ("StatefulSet", "other-0-leader") not in world.objects


def test_pods_with_a_network_of_their_own_have_no_block() -> None:
    world = SimulatedWorld({"model": LLAMA_8B["model"]})
    world.settle()
    assert Annotation.PORT_BLOCK not in template(world)["metadata"]["annotations"]
    (engine,) = template(world)["spec"]["containers"]
    assert engine["ports"] == [{"name": "http", "containerPort": 8000, "protocol": "TCP"}]
