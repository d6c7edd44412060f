"""The ports that the ranks of a group listen on by number; all others are random.

In a pod's own network the numbers are the same everywhere. On a node's network two engines may meet, so each
resource has a block of its own there, and every port of it is declared: the scheduler then keeps what would
collide off one node, whoever uses the port. The blocks lie below the NodePorts (30000-32767) and the range
from which Linux gives random ports (32768-60999, ``ip_local_port_range``), in which a port is now and then
taken already.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from shardwright_operator.api.constants import Annotation
from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.build.owner import Owner
from shardwright_planner.plan import Plan

BLOCK_PORTS = 64
FIRST_PORT = 20_000
BLOCKS = 156
LAST_PORT = FIRST_PORT + BLOCKS * BLOCK_PORTS - 1
RANDOM_PORTS = range(32_768, 61_000)

_SIDE_CHANNELS = 16
"""Where the side channels begin in a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Port numbers of a group."""

    api: int
    master: int = 29_500
    data_parallel: int = 29_550
    peers: int = 29_600
    """Rank 0's launcher listens here for those of the other ranks."""
    ray: int = 6379
    side_channels: range = range(0)
    """Ports of NIXL's handshakes on a node's network: one for each rank of an engine."""
    block: int | None = None
    """Number of the block on the nodes' network."""


def ports_of(spec: ModelDeploymentSpec, plan: Plan, block: int | None = None) -> Ports:
    """The ports of a group; ``block`` is for pods on the nodes' network.

    Raises:
        SpecError: the API's port is one that others may take, or more ranks than side channels want one.
    """
    if block is None:
        return Ports(api=spec.engine.api_port)
    first = FIRST_PORT + block * BLOCK_PORTS
    return Ports(
        api=first if spec.engine.port is None else _checked(spec.engine.port),
        master=first + 1,
        data_parallel=first + 2,
        peers=first + 3,
        ray=first + 4,
        side_channels=_side_channels(spec, plan, first + _SIDE_CHANNELS),
        block=block,
    )


def free_block(owner: Owner, *, kept: int | None, taken: Collection[int]) -> int:
    """The block of a resource: the one that it has, else the first free one from a place of its own.

    Two resources that are made at the same moment do not know each other's block. Each begins at its own
    place, so that they still draw different ones, but for one pair in as many as there are blocks.

    Raises:
        SpecError: every block is taken.
    """
    if kept is not None and kept not in taken:
        return kept
    name = hashlib.sha256(f"{owner.namespace}/{owner.name}".encode()).digest()
    start = int.from_bytes(name[:8]) % BLOCKS
    found = next((b for i in range(BLOCKS) if (b := (start + i) % BLOCKS) not in taken), None)
    if found is None:
        raise SpecError(
            field="spec.network.hostNetwork",
            value=True,
            limit=f"all {BLOCKS} blocks of host ports ({FIRST_PORT}-{LAST_PORT}) belong to other resources",
            remedy="leave hostNetwork out, or delete a resource that uses it",
        )
    return found


def block_of(template: Mapping[str, Any]) -> int | None:
    """The block that a pod template was rendered with."""
    notes = (template.get("metadata") or {}).get("annotations") or {}
    text = str(notes.get(Annotation.PORT_BLOCK, ""))
    return int(text) if text.isdecimal() else None


def has_side_channels(spec: ModelDeploymentSpec) -> bool:
    """Whether the engine passes KV caches on to others."""
    return any(argument.startswith("--kv-transfer-config") for argument in spec.engine.extra_args or ())


def _checked(port: int) -> int:
    if FIRST_PORT <= port <= LAST_PORT or port in RANDOM_PORTS:
        raise SpecError(
            field="spec.engine.port",
            value=port,
            limit=f"with hostNetwork the ports {FIRST_PORT}-{LAST_PORT} are given out in blocks, and nodes "
            f"give {RANDOM_PORTS.start}-{RANDOM_PORTS.stop - 1} to any connection",
            remedy="choose another, or leave it out",
        )
    return port


def _side_channels(spec: ModelDeploymentSpec, plan: Plan, first: int) -> range:
    """vLLM adds the data-parallel rank times the tensor-parallel size and the tensor-parallel rank to the
    first port (vLLM pull request 24249).
    """
    if not has_side_channels(spec):
        return range(0)
    ranks = plan.data_parallel * plan.tensor_parallel
    most = BLOCK_PORTS - _SIDE_CHANNELS
    if ranks > most:
        raise SpecError(
            field="spec.network.hostNetwork",
            value=True,
            limit=f"{ranks} ranks pass KV caches on and a block of host ports has room for {most}",
            remedy="leave hostNetwork out, or pin fewer data-parallel ranks with spec.parallelism.data",
        )
    return range(first, first + ranks)
