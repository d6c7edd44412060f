"""A storm's schedule, from a seed: which disturbance strikes when, and with which dice.

Pure. What a disturbance finds when its time comes differs from run to run, as a real control plane is no
simulation; what it is and what it draws does not.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What can strike."""

    # the operator's process
    OPERATOR_DIES_AT_A_WRITE = "operator dies at a write"
    OPERATOR_KILLED = "operator killed"
    OPERATOR_STOPPED = "operator stopped in order"
    OPERATOR_FROZEN = "operator frozen while another takes over"
    # its way to the API server
    API_SERVER_RESTARTED = "API server restarted"
    CONTROLLERS_RESTARTED = "controller-manager restarted"
    WATCHES_CUT = "watches cut"
    WATCH_GARBLED = "watch garbled"
    WATCHES_HELD = "watches silent"
    ANSWERS_SLOW = "answers slow"
    ANSWERS_LOST = "answers lost"
    TOO_MANY_REQUESTS = "429 with Retry-After"
    SEVERED = "no way to the API server"
    # the world
    CHILD_DELETED = "child deleted"
    SET_DELETED = "set deleted"
    POD_DELETED = "pod deleted"
    POD_DELETED_AT_ONCE = "pod deleted without grace"
    CONTAINER_RESTARTED = "container restarted in place"
    CONTAINER_ENDED = "container ended"
    POD_FAILED = "pod failed"
    SET_SCALED_TO_NOTHING = "set scaled to 0 by hand"
    NODE_CORDONED = "node cordoned"
    NODE_LOST = "node lost"
    NODE_DELETED = "node deleted"
    NODES_BACK = "nodes back"
    # people and their tools
    REPLICAS_EDITED = "replicas edited"
    ENVIRONMENT_EDITED = "environment edited"
    IMAGE_EDITED = "image edited"
    SURGE_EDITED = "surge edited"
    PAUSED = "paused or resumed"
    NONSENSE_EDITED = "spec that cannot be"
    RESOURCE_RECREATED = "resource deleted and made again"
    RESOURCE_DELETED = "resource deleted"


OPERATOR_AND_WAY: Mapping[Kind, int] = {
    Kind.OPERATOR_DIES_AT_A_WRITE: 6,
    Kind.OPERATOR_KILLED: 1,
    Kind.OPERATOR_STOPPED: 1,
    Kind.OPERATOR_FROZEN: 2,
    Kind.API_SERVER_RESTARTED: 1,
    Kind.CONTROLLERS_RESTARTED: 1,
    Kind.WATCHES_CUT: 2,
    Kind.WATCH_GARBLED: 1,
    Kind.WATCHES_HELD: 3,
    Kind.ANSWERS_SLOW: 2,
    Kind.ANSWERS_LOST: 3,
    Kind.TOO_MANY_REQUESTS: 2,
    Kind.SEVERED: 1,
}
"""Weights of what befalls the operator and its way to the API server."""

WORLD: Mapping[Kind, int] = {
    Kind.CHILD_DELETED: 2,
    Kind.SET_DELETED: 3,
    Kind.POD_DELETED: 3,
    Kind.POD_DELETED_AT_ONCE: 2,
    Kind.CONTAINER_RESTARTED: 2,
    Kind.CONTAINER_ENDED: 1,
    Kind.POD_FAILED: 2,
    Kind.SET_SCALED_TO_NOTHING: 1,
    Kind.NODE_CORDONED: 2,
    Kind.NODE_LOST: 1,
    Kind.NODE_DELETED: 1,
    Kind.NODES_BACK: 3,
    Kind.REPLICAS_EDITED: 5,
    Kind.ENVIRONMENT_EDITED: 4,
    Kind.IMAGE_EDITED: 2,
    Kind.SURGE_EDITED: 1,
    Kind.PAUSED: 2,
    Kind.NONSENSE_EDITED: 1,
    Kind.RESOURCE_RECREATED: 1,
    Kind.RESOURCE_DELETED: 1,
}
"""Weights of what befalls everything else."""

GUST_EVERY_S = 1.4
FRONT_S, LULL_S = 40.0, 30.0
"""In a lull the operator and its way are left alone: only then can it be judged how fast it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gust:
    """One disturbance to come."""

    at_s: float
    """Seconds after the storm's beginning."""
    kind: Kind
    dice: int
    """Seed of everything that the disturbance draws."""


def forecast(seed: int, duration_s: float) -> tuple[Gust, ...]:
    """All gusts of a storm, in order of time."""
    return tuple(_gusts(random.Random(seed), duration_s))  # noqa: S311 - a storm is no secret


def _gusts(rng: random.Random, duration_s: float) -> Iterator[Gust]:
    at_s = 0.0
    while True:
        at_s += rng.uniform(0.1, 2 * GUST_EVERY_S)
        if at_s >= duration_s:
            return
        kinds = dict(WORLD) if at_s % (FRONT_S + LULL_S) > FRONT_S else {**WORLD, **OPERATOR_AND_WAY}
        (kind,) = rng.choices(list(kinds), weights=list(kinds.values()))
        yield Gust(at_s=round(at_s, 1), kind=kind, dice=rng.getrandbits(32))
