"""What a group needs besides its GPUs: a scheduler that places it, a claim, the objects that its pods name, a
model. Whatever of it is not there is told before any GPU is taken.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shardwright_operator.api.constants import Reason
from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.build.revision import Revision
from shardwright_operator.decide import claim
from shardwright_operator.decide.course import Course
from shardwright_operator.decide.download import Download, decide_download, model_section
from shardwright_operator.decide.references import ReferenceCheck, decide_references
from shardwright_operator.observe.observed import Observed
from shardwright_operator.status.conditions import Condition
from shardwright_operator.status.report import Problem
from shardwright_operator.status.verified import measured_section, plan_verified


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a group needs besides its GPUs, and what its engine says of itself."""

    placing: Problem | None
    """Why no scheduler could place it: that of the spec is not there, or the pods' priority."""
    claim: Problem | None
    """Why the claim that holds the model, or is to hold it, cannot be mounted."""
    references: ReferenceCheck | None
    download: Download | None
    conditions: tuple[Condition, ...]
    sections: Mapping[str, Any]

    @property
    def file_problems(self) -> tuple[Problem, ...]:
        """Why a Secret or ConfigMap, or a model that is to be downloaded, is not there yet."""
        steps = (self.references, self.download)
        return tuple(step.problem for step in steps if step is not None and step.problem is not None)

    @property
    def look_again_s(self) -> float | None:
        """When something of it is due without an event."""
        return None if self.references is None else self.references.look_again_s

    @property
    def gate(self) -> Problem | None:
        """Why no group may start with the target yet; without its claim a download tells less."""
        found = (self.placing, self.claim, *self.file_problems)
        return next((problem for problem in found if problem is not None), None)

    @property
    def holds(self) -> bool:
        """Whether a group that comes back comes to what it ran before: that needs nothing of this."""
        return self.placing is not None or bool(self.file_problems)


def find_needs(
    course: Course, target: Revision, observed: Observed, now: datetime, *, check_image: str
) -> Needs:
    """The needs of groups that come to the target; without a ``check_image`` no references are checked."""
    resource, spec = course.resource, course.spec
    measured = measured_section(resource.status.get("measured"), observed.measurement, target)
    # Once a group has started, its pods tell; where none is wanted, nobody asks.
    asks = bool(course.wishes.groups) and not course.has_started
    references = decide_references(observed, course.owner, target, now, image=check_image) if asks else None
    download = decide_download(observed, course.owner, target, now, retry=resource.retry)
    asked = spec if course.target.verdict.accepted else None
    return Needs(
        placing=_gang_problem(observed, target) or _priority_problem(observed, asked),
        claim=None if asked is None else claim.claim_problem(asked, target.plan, observed.claim),
        references=references,
        download=download,
        conditions=tuple(_verdicts(target, download, measured)),
        sections={**model_section(spec, download), **({"measured": measured} if measured else {})},
    )


def _gang_problem(observed: Observed, target: Revision) -> Problem | None:
    """Why the target's groups cannot be placed by the scheduler that the spec asks for."""
    why = None if target.gang is None else observed.gang_obstacles.get(target.gang.gang)
    if target.gang is None or why is None:
        return None
    message = f"spec.scheduling.gang is {target.gang.gang}, but {why}"
    return Problem(reason=Reason.GANG_UNAVAILABLE, message=message, stalled=True)


def _priority_problem(observed: Observed, spec: ModelDeploymentSpec | None) -> Problem | None:
    """The PriorityClass for which pods would be refused; their set's controller says so in Events only."""
    name = None if spec is None else spec.scheduling.priority_class_name
    if not observed.priorities.lacks(name):
        return None
    error = SpecError(
        field="spec.scheduling.priorityClassName",
        value=name,
        limit="the cluster has no such PriorityClass",
        remedy=f"create it, or name one of: {', '.join(observed.priorities.values)}",
    )
    return Problem(reason=Reason.INVALID_SPEC, message=str(error), stalled=True)


def _verdicts(
    revision: Revision, download: Download | None, measured: Mapping[str, Any] | None
) -> Iterator[Condition]:
    """Conditions that only some resources have."""
    if download is not None:
        yield download.condition
    if measured is not None:
        yield plan_verified(revision.plan, measured)
