"""What all the decisions of one pass share: the resource, its target revision, and the time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from shardwright_operator.api import names
from shardwright_operator.api.gang import kind_of
from shardwright_operator.api.lifecycle_spec import RecoverySpec
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.revision import Revision
from shardwright_operator.decide.admission import Admission
from shardwright_operator.decide.decision import Apply, Claim, Delete, Event
from shardwright_operator.decide.drift import needed_write
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.views import ChildKind, ChildView
from shardwright_operator.status.group import GroupState
from shardwright_operator.status.report import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One pass, seen by the group decisions."""

    observed: Observed
    owner: Owner
    now: datetime
    target: Revision
    """The revision that all groups should run."""
    revisions: Mapping[str, Revision]
    """All stored revisions by name, the target included."""
    unreadable: frozenset[str] = frozenset()
    """Names of stored revisions that a newer operator wrote in a way this one cannot read."""
    fallback: Revision
    """What groups start with while the target is held back."""
    admission: Admission
    recovery: RecoverySpec = field(default_factory=RecoverySpec)
    held: bool = False
    """Whether the target is held back: by a pause, or because it does not come up where it was tried."""
    retry: str = ""
    gate: Problem | None = None
    """Why no group may start with the target yet: its model is still on the way, or nobody could place it."""

    @property
    def coming(self) -> Revision:
        """What a group starts with that has no revision of its own to come back to."""
        return self.fallback if self.held else self.target

    def child(self, kind: ChildKind, name: str) -> ChildView | None:
        """The owned object of this kind and name, if it stands."""
        return self.observed.children.get((kind, name))

    def was_refused(self, kind: ChildKind, name: str) -> bool:
        """Whether the server refused the last write to a child, as far as this operator remembers."""
        note = self.observed.notes.get((kind, name))
        return note is not None and bool(note.refused)

    def obstacle(self, index: int, revision: Revision, *, sets_only: bool = False) -> str:
        """The refused write that keeps a group from running, in words; empty when there is none.

        A group needs all of its children and those of the resource: without its NetworkPolicy it would run
        open to everybody, without one of its sets it would hold its GPUs and wait. A write whose time to be
        tried again has come is no obstacle, or it never would be tried; nor is a set of other pods than those
        of ``revision``, which somebody may have corrected for this very reason.
        """
        own, name = names.group(self.owner.name, index), self.owner.name
        for note in self.observed.notes.values():
            if not note.refused or (sets_only and note.kind is not ChildKind.STATEFUL_SET):
                continue
            past = note.pods_hash not in {"", revision.pods_hash} and note.name.startswith(f"{own}-")
            due = past or (note.retry_at is not None and note.retry_at <= self.now)
            needed = (
                note.kind in {ChildKind.REVISION, ChildKind.CONFIG_MAP}
                or note.name in {own, name}
                or note.name.startswith(f"{own}-")
            )
            if needed and (note.foreign or not due):
                return f"{note.kind} {note.name} is refused"
        return ""

    def write(self, manifest: Mapping[str, object]) -> Apply | None:
        """The apply that a manifest needs, or None."""
        metadata = manifest["metadata"]
        assert isinstance(metadata, Mapping)  # noqa: S101 - every builder gives metadata
        place = (ChildKind(kind_of(manifest)), str(metadata["name"]))
        return needed_write(
            manifest, self.observed.children.get(place), self.observed.notes.get(place), self.now
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStep:
    """What to do about one group now. Writes are made in the order of the fields."""

    state: GroupState
    rehearsal: Apply | None = None
    """What the server has to say that it would take, before anything is written."""
    gang: Apply | None = None
    """The object that stands for the group at a gang scheduler: its pods name it."""
    leader: Apply | None = None
    ends: tuple[Delete, ...] = ()
    """Pods that are to end before the worker set lets them go with a grace of its own."""
    worker: Apply | None = None
    deletes: tuple[Delete, ...] = ()
    events: tuple[Event, ...] = ()
    confirm: tuple[Claim, ...] = ()
    requeue_after_s: float | None = None
    goes_down: bool = False
    """Whether it takes down a group that was up."""
