"""The check of references before the first group of a revision's pods starts: see ``build.references``. Once
one has started, its pods tell by themselves, and the Job goes.

It holds groups back for one thing only, which is that a kubelet says what is missing. Whatever else keeps the
check itself from its end, an image that cannot be pulled, a full cluster, a quota, is no reason to wait: the
groups' own pods tell then.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from shardwright_operator.api.constants import ConditionType, Reason
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.references import reference_check
from shardwright_operator.build.revision import Revision
from shardwright_operator.decide.cause import waiting_reason
from shardwright_operator.decide.decision import Apply, Delete
from shardwright_operator.decide.drift import needed_write
from shardwright_operator.observe.conditions import condition_of
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.views import ChildKind, ChildView, JobPhase, LoaderView
from shardwright_operator.status.report import Problem

PATIENCE = timedelta(seconds=30)
"""Time for the check's image to be pulled and its pod to start."""

_MISSING = re.compile(r"\b(secret|configmap)\b", re.IGNORECASE)
"""What a kubelet's words name when a reference leads nowhere."""

_MISSING_REASONS = frozenset({Reason.SECRET_MISSING, Reason.CONFIG_REJECTED})

_PENDING = Problem(
    reason=Reason.CHECKING_REFERENCES,
    message="a kubelet is asked whether the Secrets and ConfigMaps are there that the pods name",
    stalled=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCheck:
    """What to do about the check now, and what it means for the groups."""

    job: str
    """Name of its Job."""
    write: Apply | None = None
    delete: Delete | None = None
    problem: Problem | None = None
    """Why no group may start with the revision yet; None when all is there, or it cannot be told."""
    look_again_s: float | None = None


def decide_references(
    observed: Observed, owner: Owner, revision: Revision, now: datetime, *, image: str
) -> ReferenceCheck | None:
    """The step of a revision's check; None when there is none to make.

    There is none without an ``image``, and none for pods that name nothing.
    """
    manifest = reference_check(owner, revision, image) if image else None
    if manifest is None:
        return None
    name = manifest["metadata"]["name"]
    place = (ChildKind.JOB, name)
    child, note = observed.children.get(place), observed.notes.get(place)
    if child is None or child.job is None:
        problem = None if note is not None and note.refused else _PENDING
        return ReferenceCheck(job=name, write=needed_write(manifest, None, note, now), problem=problem)
    if child.deleting:
        return ReferenceCheck(job=name, problem=_PENDING)
    if child.job.phase is JobPhase.COMPLETE:
        return ReferenceCheck(job=name)
    failed = child.job.phase is JobPhase.FAILED
    pods = _pods(observed, child)
    step = ReferenceCheck(job=name) if failed else _under_way(child, pods, now)
    lost = failed or not pods or pods[-1].phase == "Failed"
    if (step.problem is None or lost) and _told_missing(observed, name):
        # Its pod was deleted, by a drain or by the person who had read its name, or its node is lost: that
        # makes no Secret. Asked once more and no oftener: from then on the status tells of nothing missing.
        delete = Delete(kind=ChildKind.JOB, name=name, uid=child.uid, why="it was lost before its end")
        return ReferenceCheck(job=name, delete=delete, problem=_PENDING)
    return step


def _pods(observed: Observed, job: ChildView) -> list[LoaderView]:
    """Those of this Job; one of its name may have left a pod on a lost node, whose word is out of date."""
    return [pod for pod in observed.loaders if pod.job == job.name and pod.created_at >= job.created_at]


def _under_way(job: ChildView, pods: Sequence[LoaderView], now: datetime) -> ReferenceCheck:
    pod = pods[-1] if pods else None
    if pod is not None and pod.waiting is not None:
        reason = waiting_reason(pod.waiting)
        if reason is not None and _MISSING.search(pod.waiting.message):
            return ReferenceCheck(job=job.name, problem=_missing(pod.name, reason, pod.waiting.message))
        if reason is not None:
            return ReferenceCheck(job=job.name)
    left_s = (job.created_at + PATIENCE - now).total_seconds()
    if left_s <= 0:
        return ReferenceCheck(job=job.name)
    return ReferenceCheck(job=job.name, problem=_PENDING, look_again_s=left_s)


def _told_missing(observed: Observed, job: str) -> bool:
    """Whether the status says by the word of this Job's pod that something is not there."""
    status = {} if observed.resource is None else observed.resource.status
    ready = condition_of(status, ConditionType.READY)
    return ready.get("reason") in _MISSING_REASONS and f"(pod {job}-" in str(ready.get("message"))


def _missing(pod: str, reason: Reason, words: str) -> Problem:
    remedy = "create it, or correct the spec; until then no group starts from this spec"
    return Problem(reason=reason, message=f"{words.rstrip('. ')} (pod {pod}); {remedy}", stalled=False)
