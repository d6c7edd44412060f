"""The outcome of one pass, as data: the apply layer does exactly this and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shardwright_operator.observe.observed import Demand
from shardwright_operator.observe.views import ChildKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Server-side apply of a complete manifest.

    ``owned`` says that the live object is known to be ours, so that the write may take fields back by force.
    A first write is not forced: the server then refuses with a conflict if somebody else holds the name.
    ``uid`` of the standing object makes the write conditional on that: a set that somebody deletes at this
    moment must not come to life again, with a decision that was made for its pods.
    """

    kind: ChildKind
    name: str
    manifest: Mapping[str, Any]
    owned: bool
    digest: str
    why: str
    uid: str | None = None
    rehearsal: bool = False
    """Whether the server is only asked if it would take this: what is written next is for nothing if not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete one object, and only the one with this UID."""

    kind: ChildKind | None
    """None for a pod."""
    name: str
    uid: str
    why: str
    grace_period_s: int | None = None


Write = Apply | Delete


class EventType(StrEnum):
    """Types of a Kubernetes Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An Event on the ModelDeployment."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClaim:
    """A belief that a destructive step rests on: the pod of this name no longer has this UID, or is going."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetClaim:
    """A belief that a destructive step rests on: this owner has no StatefulSet of this name, or it is going.

    A set that somebody takes a label from leaves the watch as a deleted one does, and runs on.
    """

    name: str
    owner_uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneClaim:
    """A belief that a new start rests on: there is no pod of this name, not even one that is going.

    A StatefulSet's controller may make one more pod from a set that it has cached. If somebody deletes that
    set before its status tells, nothing that the watches have brought so far says that the pod is there.
    """

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceClaim:
    """A belief that a destructive step rests on: the resource of this name is the one with this UID.

    Then none with another UID is there, since a name is held by one object at a time.
    """

    name: str
    uid: str


Claim = PodClaim | SetClaim | GoneClaim | ResourceClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do now.

    Writes come in stages: a stage begins only when all of the one before has succeeded, so that a revision is
    stored before a set names it. ``confirm`` is checked against the live API before any write; a belief that
    proves wrong ends the pass, and the key is tried again with a repaired store.
    """

    stages: tuple[tuple[Write, ...], ...] = ()
    confirm: tuple[Claim, ...] = ()
    status: Mapping[str, Any] | None = None
    """The whole status to write, or None when it already stands so."""
    events: tuple[Event, ...] = ()
    starts: tuple[Demand, ...] = ()
    """Groups that are made now. Passes over other resources, which go on while the writes of this one are
    under way, must not take their nodes for free."""
    requeue_after_s: float | None = None
