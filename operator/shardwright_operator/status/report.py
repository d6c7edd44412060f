"""The whole ``status`` of a resource from what one pass has found out.

Ready means: the plan stands, every wanted group serves, and all of them run the target revision. It is
recomputed from live state each time and never latched. Stalled means that the operator cannot go on by
itself; whoever reads it finds in the message what to do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shardwright_operator.api.constants import ConditionType, GroupPhase, Reason
from shardwright_operator.api.plan_status import plan_section
from shardwright_operator.api.status import MAX_GROUPS
from shardwright_operator.build.owner import selector_text
from shardwright_operator.observe.views import ResourceView
from shardwright_operator.status.conditions import Condition, merge_conditions
from shardwright_operator.status.group import GroupState
from shardwright_planner import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that keeps the resource from its goal and that no group's state tells."""

    reason: Reason
    message: str
    stalled: bool
    """Whether it stays until a person acts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVerdict:
    """What became of the spec's wish: accepted, refused, or waiting for something outside."""

    accepted: bool
    reason: Reason
    message: str
    plan: Plan | None
    """What to show: the plan that runs, or else the refused one with its numbers."""
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything that the status is made of."""

    resource: ResourceView
    verdict: PlanVerdict
    groups: Sequence[GroupState]
    wanted_groups: int
    revision: str
    image: str
    problems: Sequence[Problem] = ()
    overrides: Sequence[str] = ()
    """Fields of children that do not stay as they are written, in words."""
    paused: bool = False
    holdup: str = ""
    """Why a rollout goes another way than the user asked for."""
    conditions: Sequence[Condition] = ()
    """Further conditions, beside those that every resource has."""
    sections: Mapping[str, Any] = field(default_factory=dict)
    """Further sections of the status, as they are written."""


def status_of(findings: Findings, now: datetime) -> dict[str, Any]:
    """The status to stand, complete; its texts may be longer than the schema allows (``cut_to_bounds``)."""
    resource, verdict, groups = findings.resource, findings.verdict, findings.groups
    serving = sum(g.available for g in groups)
    wire: dict[str, Any] = {
        "observedGeneration": resource.generation,
        "conditions": merge_conditions(
            _conditions(findings),
            resource.status.get("conditions") or (),
            generation=resource.generation,
            now=now,
        ),
        "replicas": sum(g.exists for g in groups),
        "readyReplicas": serving,
        "ready": f"{serving}/{findings.wanted_groups}",
        "selector": selector_text(resource.owner),
        "groups": [g.to_wire() for g in _shown(groups)],
    }
    if verdict.plan is not None:
        wire["plan"] = plan_section(verdict.plan)
    if findings.revision:
        wire["revision"] = findings.revision
    if findings.image:
        wire["image"] = findings.image
    return {**wire, **findings.sections}


def _conditions(findings: Findings) -> list[Condition]:
    verdict, groups = findings.verdict, findings.groups
    problems = [p for p in (verdict.problem, *findings.problems, *_failed(groups)) if p is not None]
    stalled = next((p for p in problems if p.stalled), None)
    ready, reason, message = _readiness(findings, problems)
    serving = sum(g.available for g in groups)
    conditions = [
        Condition(type=ConditionType.READY, status=ready, reason=reason, message=message),
        Condition(
            type=ConditionType.AVAILABLE,
            status=serving > 0,
            reason=Reason.GROUPS_READY if serving else reason,
            message=f"{serving} of {findings.wanted_groups} groups serve requests",
        ),
        Condition(
            type=ConditionType.PLAN_ACCEPTED,
            status=verdict.accepted,
            reason=verdict.reason,
            message=verdict.message,
        ),
    ]
    if stalled is not None:
        conditions.append(
            Condition(type=ConditionType.STALLED, status=True, reason=stalled.reason, message=stalled.message)
        )
    elif (unsettled := (reason, message) if not ready else _departure(groups)) is not None:
        reason, message = unsettled
        conditions.append(
            Condition(type=ConditionType.RECONCILING, status=True, reason=reason, message=message)
        )
    plan = verdict.plan
    if plan is not None and plan.slo_predicted is not None:
        conditions.append(
            Condition(
                type=ConditionType.SLO_PREDICTED,
                status=plan.slo_predicted,
                reason=Reason.SLO_MET if plan.slo_predicted else Reason.SLO_MISSED,
                message=plan.slo_message,
            )
        )
    if findings.overrides:
        conditions.append(
            Condition(
                type=ConditionType.FIELDS_OVERRIDDEN,
                status=True,
                reason=Reason.FIELD_OVERRIDDEN,
                message="; ".join(findings.overrides),
            )
        )
    return [*conditions, *findings.conditions]


def _readiness(findings: Findings, problems: Sequence[Problem]) -> tuple[bool, Reason, str]:
    if problems:
        return False, problems[0].reason, problems[0].message
    if findings.wanted_groups == 0:
        return True, Reason.SCALED_TO_ZERO, "spec.replicas is 0: no group is wanted"
    wanted = [g for g in findings.groups if g.phase is not GroupPhase.TERMINATING]
    waiting = next((g for g in wanted if not g.available), None)
    if waiting is not None:
        return False, waiting.reason, f"group {waiting.index}: {waiting.message}"
    outdated = [g.index for g in wanted if not g.current]
    if outdated and findings.paused:
        count = "1 group" if len(outdated) == 1 else f"{len(outdated)} groups"
        message = f"paused with {count} on an older revision; set spec.rollout.paused to false"
        return False, Reason.PAUSED, message
    if outdated:
        message = "1 group still runs" if len(outdated) == 1 else f"{len(outdated)} groups still run"
        message += " an older revision"
        if findings.holdup:
            message += f"; {findings.holdup}"
        return False, Reason.ROLLING_OUT, message
    if len(wanted) < findings.wanted_groups:
        return False, Reason.STARTING, f"{len(wanted)} of {findings.wanted_groups} groups exist"
    wanted_groups = findings.wanted_groups
    whole = "the group serves" if wanted_groups == 1 else f"all {wanted_groups} groups serve"
    return True, Reason.GROUPS_READY, f"{whole} requests"


def _departure(groups: Sequence[GroupState]) -> tuple[Reason, str] | None:
    """A group on its way out: users miss nothing, but whoever waits for a settled state waits for it."""
    leaving = next((g for g in groups if g.phase is GroupPhase.TERMINATING), None)
    return None if leaving is None else (leaving.reason, f"group {leaving.index}: {leaving.message}")


def _failed(groups: Sequence[GroupState]) -> list[Problem]:
    return [
        Problem(reason=g.reason, message=f"group {g.index}: {g.message}", stalled=True)
        for g in groups
        if g.phase is GroupPhase.FAILED
    ]


def _shown(groups: Sequence[GroupState]) -> list[GroupState]:
    """As many groups as the status may hold, the broken ones first when there are more."""
    if len(groups) <= MAX_GROUPS:
        return list(groups)
    troubled_first = sorted(groups, key=lambda g: (g.available, g.index))[:MAX_GROUPS]
    return sorted(troubled_first, key=lambda g: g.index)
