"""What others hold or refuse: names that are not ours, and writes that the server turned down."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from shardwright_operator.api.constants import ConditionType, Reason
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.revision import Revision
from shardwright_operator.decide.children import attached_names, wanted_names
from shardwright_operator.decide.drift import ABSENT, body_digest
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.views import ChildKind, ResourceView, WriteNote
from shardwright_operator.status.report import Problem

UNDONE_SHOWN = timedelta(seconds=30)
"""How long past its next attempt a fight over a field is shown: that attempt tells whether it goes on."""

COLLECTED_WITHIN = timedelta(minutes=5)
"""Kubernetes removes what a deleted owner leaves within seconds, also after a restart of its controllers."""
_PATIENCE = f"{COLLECTED_WITHIN // timedelta(minutes=1)} minutes"


def conflicts(observed: Observed, resource: ResourceView, now: datetime) -> list[Problem]:
    """Objects that hold our children's names and are not ours. None is ever adopted or deleted."""
    problems = []
    overdue = now >= conflict_deadline(resource, now)
    for child in observed.children.values():
        if child.owner_uid == resource.uid:
            continue
        text = f"{child.kind} {child.name} carries this resource's label but has "
        stalled = overdue
        if not child.owner_uid and not child.deleting:
            stalled = True
            text += (
                "no owner; delete it (it was left behind when its owner was deleted), or rename this resource"
            )
        elif not overdue:
            # Most likely of a resource of the same name that was just deleted, and about to go with it.
            text += "another owner; waiting until Kubernetes has removed it with that owner"
        elif child.deleting:
            text += (
                f"another owner, and its deletion has not ended within {_PATIENCE}: see who has to act on "
                "its metadata.finalizers, or rename this resource"
            )
        else:
            text += (
                f"another owner, which Kubernetes has not removed it with within {_PATIENCE}: delete it if "
                "that owner is gone (then kube-controller-manager's garbage collector does not work), "
                "or rename this resource"
            )
        problems.append(Problem(reason=Reason.NAME_CONFLICT, message=text, stalled=stalled))
    for note in observed.notes.values():
        if note.foreign:
            text = f"{note.kind} {note.name} exists already and belongs to somebody else ({note.refused})"
            remedy = "rename this resource, or delete that object"
            problems.append(Problem(reason=Reason.NAME_CONFLICT, message=f"{text}; {remedy}", stalled=True))
    return problems


def conflict_deadline(resource: ResourceView, now: datetime) -> datetime:
    """Until when a foreign child may be expected to go by itself: counted from the status that first told."""
    conditions = resource.status.get("conditions") or ()
    ready: Mapping[str, object] = next((c for c in conditions if c.get("type") == ConditionType.READY), {})
    if ready.get("reason") != Reason.NAME_CONFLICT or ready.get("status") != "False":
        return now + COLLECTED_WITHIN
    try:
        return datetime.fromisoformat(str(ready.get("lastTransitionTime"))) + COLLECTED_WITHIN
    except ValueError:
        return now + COLLECTED_WITHIN


def notes_that_matter(
    observed: Observed, target: Revision | None, groups: Iterable[int]
) -> dict[tuple[ChildKind, str], WriteNote]:
    """Notes about children that are still wanted: the rest is past, after a scale-down for one."""
    if not observed.notes:
        return {}
    wanted = wanted_names(observed.key.name, groups)
    if target is not None:
        wanted |= attached_names(
            Owner(name=observed.key.name, namespace=observed.key.namespace, uid=""), target
        )
    revision = target.name if target else ""
    return {
        place: note
        for place, note in observed.notes.items()
        if note.name == revision or (note.name in wanted and note.kind is not ChildKind.REVISION)
    }


def overrides(observed: Observed, now: datetime) -> list[str]:
    """Fields that do not stay as they are written, in words: the server or somebody else changes them."""
    told = []
    for note in observed.notes.values():
        child = observed.children.get((note.kind, note.name))
        if child is None or note.refused:
            continue
        if note.altered and note.answer == body_digest(child):
            told.append(f"{note.kind} {note.name}: the API server changes what is applied ({note.altered})")
        elif (
            note.undone not in {"", ABSENT}
            and note.retry_at is not None
            and now < note.retry_at + UNDONE_SHOWN
        ):
            told.append(f"{note.kind} {note.name}: somebody changes it back ({note.undone})")
    return told


def refusals(observed: Observed, now: datetime) -> list[Problem]:
    """Writes that were refused; one whose time has come is tried in this very pass."""
    return [
        Problem(
            reason=Reason.WRITE_REFUSED,
            message=f"the API server refuses {note.kind} {note.name}: {note.refused}",
            stalled=False,
        )
        for note in observed.notes.values()
        if note.refused and not note.foreign and (note.retry_at is None or note.retry_at > now)
    ]
