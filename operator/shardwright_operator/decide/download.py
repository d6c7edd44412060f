"""The download of a model to a shared claim: one Job, and no group starts with its revision before that is
complete.

Whatever keeps the download from going on is told before any GPU is taken: a missing Secret shows in its
pod, a model that is not there in its last words. A Job that failed stays as it is until the wish changes:
another image, another token's Secret, or a new value of the retry annotation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shardwright_operator.api.constants import ConditionType, Reason
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.build.download import (
    ATTEMPTS,
    claim_name,
    download_job,
    job_annotations,
    job_name,
)
from shardwright_operator.build.model_files import origin
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.revision import Revision
from shardwright_operator.decide.cause import last_words, waiting_reason
from shardwright_operator.decide.claim import claim_words, names_volume
from shardwright_operator.decide.decision import Apply, Delete
from shardwright_operator.decide.drift import needed_write
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.views import (
    ChildKind,
    ChildView,
    ClaimView,
    JobPhase,
    JobView,
    LoaderView,
)
from shardwright_operator.status.conditions import Condition
from shardwright_operator.status.report import Problem

GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """What to do about the download now, and what it means for the groups."""

    job: str
    """Name of its Job."""
    write: Apply | None = None
    delete: Delete | None = None
    condition: Condition
    problem: Problem | None = None
    """Why no group may start with the revision yet; None when the model is there."""
    status: Mapping[str, Any]


def decide_download(
    observed: Observed, owner: Owner, revision: Revision, now: datetime, *, retry: str
) -> Download | None:
    """The step of a revision's download; None for a revision that has none."""
    spec = revision.download
    if spec is None:
        return None
    name = job_name(owner, spec)
    manifest = download_job(owner, spec, retry=retry)
    place = (ChildKind.JOB, name)
    child = observed.children.get(place)
    bytes_ = revision.plan.weights_bytes
    if child is None or child.job is None:
        write = needed_write(manifest, None, observed.notes.get(place), now)
        return _waiting(name, bytes_, Reason.DOWNLOADING, "the download has not begun", write=write)
    if child.job.phase is JobPhase.COMPLETE:
        if not _is_younger(observed.claim, claim_name(spec), child.job):
            return _complete(name, bytes_, child.job)
        delete = Delete(kind=ChildKind.JOB, name=name, uid=child.uid, why="its claim was made anew since")
        text = "the claim was made anew since the download, which begins again"
        return _waiting(name, bytes_, Reason.DOWNLOADING, text, delete=None if child.deleting else delete)
    if child.deleting:
        return _waiting(name, bytes_, Reason.DOWNLOADING, "the download begins anew")
    failed = child.job.phase is JobPhase.FAILED
    if not _is_of(child, job_annotations(spec, retry if failed else "")):
        delete = Delete(kind=ChildKind.JOB, name=name, uid=child.uid, why="the wish has changed since")
        return _waiting(name, bytes_, Reason.DOWNLOADING, "the download begins anew", delete=delete)
    pods = [pod for pod in observed.loaders if pod.job == name]
    if failed:
        return _failed(name, bytes_, child.job, pods)
    return _under_way(name, bytes_, child.job, pods, observed.claim)


def model_section(spec: ModelDeploymentSpec | None, download: Download | None) -> dict[str, Any]:
    """``status.model``: where the ranks read the model from; nothing while the spec cannot be read."""
    if spec is None:
        return {}
    model: dict[str, Any] = {
        "source": str(origin(spec)),
        "trustRemoteCode": bool(spec.model.trust_remote_code),
    }
    if download is not None:
        model["download"] = dict(download.status)
    return {"model": model}


def _is_of(child: ChildView, wanted: Mapping[str, str]) -> bool:
    """Whether a Job that did not succeed was made from this wish; that nobody retries is no other wish."""
    return all(child.annotations.get(key) == value for key, value in wanted.items())


def _is_younger(claim: ClaimView | None, name: str, job: JobView) -> bool:
    """Whether the claim was made after the download to one of its name; one with the files costs a check."""
    return claim is not None and claim.name == name and claim.created > job.completed != ""


def _complete(name: str, bytes_: int, job: JobView) -> Download:
    text = "the model is on the shared claim"
    return Download(
        job=name,
        condition=Condition(
            type=ConditionType.MODEL_DOWNLOADED, status=True, reason=Reason.DOWNLOADED, message=text
        ),
        status=_wire(name, bytes_, job, Reason.DOWNLOADED, text),
    )


def _failed(name: str, bytes_: int, job: JobView, pods: Sequence[LoaderView]) -> Download:
    reason, why = _last_attempt(pods)
    text = f"the download failed: {why or job.message or 'its pods are gone'}"
    remedy = "correct the spec or the Secret, then set the annotation shardwright.dev/retry to a new value"
    return _stuck(name, bytes_, job, reason, f"{text}; {remedy}", stalled=True)


def _under_way(
    name: str, bytes_: int, job: JobView, pods: Sequence[LoaderView], claim: ClaimView | None
) -> Download:
    current = pods[-1] if pods else None
    if current is not None and current.unschedulable:
        text = f"pod {current.name} fits no node: {current.unschedulable}"
        if names_volume(current.unschedulable) and (told := claim_words(claim)):
            text = f"{text.rstrip('. ')}; {told}"
        # Not "waiting for capacity", which says of a group that it is in the queue for GPUs.
        return _stuck(name, bytes_, job, Reason.DOWNLOADING, text)
    if current is not None and current.waiting is not None:
        reason = waiting_reason(current.waiting)
        if reason is not None:
            text = f"pod {current.name}: {current.waiting.reason}: {current.waiting.message}"
            return _stuck(name, bytes_, job, reason, text)
    there = next((pod.bytes_there for pod in reversed(pods) if pod.bytes_there is not None), None)
    text = f"downloading {bytes_ / GIB:.0f} GiB"
    if there is not None:
        text += f", of which {there / GIB:.1f} ({_percent(there, bytes_)} %) are there,"
    if job.started:
        text += f" since {job.started}"
    if job.failures:
        _, why = _last_attempt(pods)
        text += f", attempt {job.failures + 1} of {ATTEMPTS + 1}; the last one failed: {why or 'unseen'}"
    return _stuck(name, bytes_, job, Reason.DOWNLOADING, text, there=there)


def _percent(there: int, bytes_: int) -> int:
    """Whole percents. The Hub may hold more than the weights that were planned with: done is for the Job."""
    return min(99, there * 100 // max(1, bytes_))


def _last_attempt(pods: Sequence[LoaderView]) -> tuple[Reason, str]:
    """Reason and text of the last attempt that ended."""
    ended = next((pod.last_exit for pod in reversed(pods) if pod.last_exit is not None), None)
    if ended is None:
        return Reason.DOWNLOAD_FAILED, ""
    reason, line = last_words(ended.message)
    text = line or _last_line(ended.message) or f"exit code {ended.exit_code}"
    return reason or Reason.DOWNLOAD_FAILED, text


def _last_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _waiting(
    name: str,
    bytes_: int,
    reason: Reason,
    text: str,
    *,
    write: Apply | None = None,
    delete: Delete | None = None,
) -> Download:
    return Download(
        job=name,
        write=write,
        delete=delete,
        condition=Condition(type=ConditionType.MODEL_DOWNLOADED, status=False, reason=reason, message=text),
        problem=Problem(reason=reason, message=text, stalled=False),
        status=_wire(name, bytes_, JobView(phase=JobPhase.PENDING), reason, text),
    )


def _stuck(
    name: str,
    bytes_: int,
    job: JobView,
    reason: Reason,
    text: str,
    *,
    stalled: bool = False,
    there: int | None = None,
) -> Download:
    return Download(
        job=name,
        condition=Condition(type=ConditionType.MODEL_DOWNLOADED, status=False, reason=reason, message=text),
        problem=Problem(reason=reason, message=f"download {name}: {text}", stalled=stalled),
        status=_wire(name, bytes_, job, reason, text) | _progress(there, bytes_),
    )


def _progress(there: int | None, bytes_: int) -> dict[str, int]:
    return {} if there is None else {"bytesDownloaded": there, "percent": _percent(there, bytes_)}


def _wire(name: str, bytes_: int, job: JobView, reason: Reason, text: str) -> dict[str, Any]:
    wire: dict[str, Any] = {"job": name, "phase": str(job.phase), "bytes": bytes_}
    if job.started:
        wire["startTime"] = job.started
    if job.completed:
        wire["completionTime"] = job.completed
    if job.failures:
        wire["failures"] = job.failures
    return {**wire, "reason": str(reason), "message": text}
