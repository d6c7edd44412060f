"""What others hold or refuse: names that are not ours, and writes that the server turned down."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from shardwright_operator.api.constants import KIND, ConditionType, Reason
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.references import check_name
from shardwright_operator.build.revision import Revision
from shardwright_operator.decide.children import attached_names, wanted_names
from shardwright_operator.decide.decision import Delete
from shardwright_operator.decide.drift import ABSENT, body_digest
from shardwright_operator.observe.conditions import condition_of
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.views import ChildKind, ResourceView, WriteNote
from shardwright_operator.status.report import Problem

UNDONE_SHOWN = timedelta(seconds=30)
"""How long past its next attempt a fight over a field is shown: that attempt tells whether it goes on."""

COLLECTED_WITHIN = timedelta(minutes=1)
"""Kubernetes removes what a deleted owner leaves within seconds, also after a restart of its controllers."""
GONE_WITHIN = timedelta(minutes=5)
"""After that a person has to see why it is still there."""
_PATIENCE = f"{GONE_WITHIN // timedelta(minutes=1)} minutes"


def conflicts(observed: Observed, resource: ResourceView, now: datetime) -> list[Problem]:
    """Objects that hold our children's names and are not ours. None is ever adopted or deleted."""
    problems = []
    overdue = now >= _told_since(resource, now) + GONE_WITHIN
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
        elif child.is_shared and not child.deleting:
            text += "another owner, and a further one for which Kubernetes keeps it; delete it, or "
            text += "rename this resource"
        else:
            text += (
                f"another owner, and its deletion has not ended within {_PATIENCE}: see who has to act on "
                "its metadata.finalizers, or rename this resource"
            )
        problems.append(Problem(reason=Reason.NAME_CONFLICT, message=text, stalled=stalled))
    for note in observed.notes.values():
        if note.foreign:
            text = f"{note.kind} {note.name} exists already and belongs to somebody else ({note.refused})"
            remedy = "rename this resource, or delete that object"
            problems.append(Problem(reason=Reason.NAME_CONFLICT, message=f"{text}; {remedy}", stalled=True))
    return problems


def left_behind(observed: Observed, resource: ResourceView, now: datetime) -> tuple[Delete, ...]:
    """Deletions of what Kubernetes should have removed with an earlier resource of this name.

    Its garbage collector misses the end of a resource that is made again under its name while its watch is
    broken, as at a restart of the API server: it then sees one object that has changed, and what the earlier
    one left would stay until kube-controller-manager starts anew. A child is known by the name of its owner,
    and one name is held by one resource at a time. What has a further owner may be kept for that one.
    """
    if now < _told_since(resource, now) + COLLECTED_WITHIN:
        return ()
    why = f"it belongs to an earlier {KIND} of this name, and Kubernetes has not collected it"
    return tuple(
        Delete(kind=child.kind, name=child.name, uid=child.uid, why=why)
        for child in observed.children.values()
        if child.owner_uid not in {"", resource.uid} and not (child.is_shared or child.deleting)
    )


def next_conflict_look_s(resource: ResourceView, now: datetime) -> float | None:
    """Seconds until a conflict that lasts leads to something else; no event tells."""
    times = (_told_since(resource, now) + wait for wait in (COLLECTED_WITHIN, GONE_WITHIN))
    return min(((time - now).total_seconds() for time in times if time > now), default=None)


def _told_since(resource: ResourceView, now: datetime) -> datetime:
    """Since when the status has told of a conflict."""
    ready = condition_of(resource.status, ConditionType.READY)
    if ready.get("reason") != Reason.NAME_CONFLICT or ready.get("status") != "False":
        return now
    try:
        return datetime.fromisoformat(str(ready.get("lastTransitionTime")))
    except ValueError:
        return now


def notes_that_matter(
    observed: Observed, target: Revision | None, groups: Iterable[int], *, started: bool
) -> dict[tuple[ChildKind, str], WriteNote]:
    """Notes about children that are still wanted: the rest is past, after a scale-down for one.

    Once a group of the target has ``started``, the check of what its pods name is past as well.
    """
    if not observed.notes:
        return {}
    wanted = wanted_names(observed.key.name, groups)
    if target is not None:
        owner = Owner(name=observed.key.name, namespace=observed.key.namespace, uid="")
        wanted |= attached_names(owner, target) | (set() if started else {check_name(owner, target)})
    revision = target.name if target else ""
    return {
        place: note
        for place, note in observed.notes.items()
        if note.name == revision or (note.name in wanted and note.kind is not ChildKind.REVISION)
    }


def overrides(observed: Observed, now: datetime) -> list[str]:
    """Fields that did not stay as they were written, in words: the server or somebody else has changed them.

    One change that was put right at once is no fight yet: it is told as what it was.
    """
    told = []
    for note in observed.notes.values():
        child = observed.children.get((note.kind, note.name))
        if child is None or note.refused:
            continue
        if note.altered and note.answer == body_digest(child):
            text = f"the API server keeps something else than is applied ({note.altered})"
            told.append(f"{note.kind} {note.name}: {text}, most likely by a webhook or a policy")
        elif (
            note.undone not in {"", ABSENT}
            and note.retry_at is not None
            and now < note.retry_at + UNDONE_SHOWN
        ):
            text = f"somebody has changed what was applied ({note.undone}), and it was applied again"
            if note.repeats > 1:
                text += f", {note.repeats} times in short order: settle who sets it"
            told.append(f"{note.kind} {note.name}: {text}")
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
