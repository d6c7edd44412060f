"""One pass over one ModelDeployment: everything that is seen in, everything that is to be done out."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from typing import Any

from shardwright_operator.api.constants import GroupPhase, Reason
from shardwright_operator.api.status import cut_to_bounds
from shardwright_operator.build.network import group_network
from shardwright_operator.build.revision import Revision, to_manifest
from shardwright_operator.decide import claim
from shardwright_operator.decide.admission import LOOK_AGAIN_S
from shardwright_operator.decide.children import child_deletes, shared_writes
from shardwright_operator.decide.course import Course, Wishes, find_course
from shardwright_operator.decide.decision import Decision, Event, EventType, ResourceClaim, Write
from shardwright_operator.decide.fleet import Fleet, decide_fleet, possible_indices
from shardwright_operator.decide.history import revision_deletes
from shardwright_operator.decide.needs import Needs, find_needs
from shardwright_operator.decide.obstacles import (
    UNDONE_SHOWN,
    conflicts,
    left_behind,
    next_conflict_look_s,
    notes_that_matter,
    overrides,
    refusals,
)
from shardwright_operator.decide.progress import Progress, progress_of
from shardwright_operator.decide.scene import GroupStep, Scene
from shardwright_operator.decide.target import DecideSettings
from shardwright_operator.decide.transitions import arrivals, chat_refused, transition_events
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.views import ResourceView
from shardwright_operator.status.group import GroupState
from shardwright_operator.status.report import Findings, Problem, status_of


def decide(observed: Observed, now: datetime, settings: DecideSettings) -> Decision:
    """What to write, delete and report now."""
    resource = observed.resource
    if resource is None or resource.deleting:
        return Decision()
    course = find_course(observed, resource, settings)
    target, most, found = course.target.revision, course.wishes.most_groups, observed
    groups = possible_indices(found, most)
    if target is None:
        observed = _with_notes(course, found, groups)
        return _with_retries(_report(_findings(course, observed, now), now), observed, now)
    # A group may be made beside ones that are about to leave. Its refused children were written again and
    # again, and no status told of them (seen in a namespace that was deleted during a rollout).
    besides = _with_notes(course, found, possible_indices(found, most, beside=True))
    needs = find_needs(course, target, besides, now, check_image=settings.check_image)
    fleet, scene, progress = _fleet(_scene(course, target, needs, besides, now), course.wishes)
    observed = _with_notes(course, found, groups | fleet.staying.keys())
    findings = _findings(course, observed, now)
    steps = (*fleet.staying.values(), *fleet.going.values())
    states = tuple(step.state for step in steps)
    findings = replace(
        findings,
        groups=states,
        problems=(
            *findings.problems,
            *_held_up_by(needs.placing, states),
            *claim.held_back(needs.claim, states),
            *needs.file_problems,
            *_problems(progress),
        ),
        holdup=fleet.holdup,
        conditions=needs.conditions,
        sections=needs.sections,
    )
    if any(problem.reason is Reason.NAME_CONFLICT for problem in findings.problems):
        held_up = _report(findings, now, _halves(steps))
        return _with_retries(_cleared(held_up, observed, course.resource, now), observed, now)
    stages = _stages(course, scene, fleet, needs)
    times = (progress.due_in_s, LOOK_AGAIN_S if fleet.holdup else None, needs.look_again_s)
    look_again_s = [s for s in times if s is not None]
    decision = _report(findings, now, stages, steps, _network_warnings(course))
    decision = replace(_sooner(decision, look_again_s), starts=scene.admission.starts)
    return _with_retries(decision, observed, now)


def _with_notes(course: Course, observed: Observed, groups: AbstractSet[int]) -> Observed:
    """What was observed, with the notes that matter to these groups."""
    target = course.target.revision
    notes = notes_that_matter(observed, target, groups, started=course.has_started)
    return replace(observed, notes=notes)


def _findings(course: Course, observed: Observed, now: datetime) -> Findings:
    """What can be said before any group is looked at."""
    resource, revision = course.resource, course.target.revision
    return Findings(
        resource=resource,
        verdict=course.target.verdict,
        groups=(),
        wanted_groups=course.wishes.groups,
        revision=revision.name if revision else "",
        image=revision.image if revision else "",
        problems=(*conflicts(observed, resource, now), *refusals(observed, now)),
        overrides=overrides(observed, now),
        paused=course.wishes.rollout.is_paused,
    )


def _scene(course: Course, target: Revision, needs: Needs, observed: Observed, now: datetime) -> Scene:
    wishes, history = course.wishes, course.history
    return Scene(
        observed=observed,
        owner=course.owner,
        now=now,
        target=target,
        revisions={**history.readable, target.name: target},
        unreadable=history.unreadable,
        fallback=history.fallback(target),
        admission=wishes.admission(observed, now),
        recovery=wishes.recovery,
        held=wishes.rollout.is_paused or needs.holds,
        retry=course.resource.retry,
        gate=needs.gate,
    )


def _fleet(scene: Scene, wishes: Wishes) -> tuple[Fleet, Scene, Progress]:
    """The groups' steps, and the scene that they were decided in; a target that does not come up is held."""
    fleet = decide_fleet(scene, wishes.groups, wishes.rollout, stalled=scene.gate is not None)
    states = [step.state for step in fleet.staying.values()]
    progress = progress_of(states, scene.target.plan, wishes.rollout, wishes.recovery, scene.now)
    if progress.overdue is None or scene.held:
        return fleet, scene, progress
    held = replace(scene, held=True, admission=wishes.admission(scene.observed, scene.now))
    return decide_fleet(held, wishes.groups, wishes.rollout, stalled=True), held, progress


def _problems(progress: Progress) -> tuple[Problem, ...]:
    """The stalled rollout, unless a group that was given up tells more."""
    if progress.overdue is None or progress.overdue.phase is GroupPhase.FAILED:
        return ()
    reason = Reason.PROGRESS_DEADLINE_EXCEEDED
    remedy = "nothing more is taken down for this revision; correct the spec or apply the former one"
    return (Problem(reason=reason, message=f"{progress.message}; {remedy}", stalled=True),)


def _held_up_by(problem: Problem | None, groups: Iterable[GroupState]) -> tuple[Problem, ...]:
    """The problem, if a group is held up by it: those that serve already are not."""
    serve = all(group.available and group.current for group in groups)
    return () if problem is None or serve else (problem,)


def _cleared(held_up: Decision, observed: Observed, resource: ResourceView, now: datetime) -> Decision:
    """The decision that a conflict leaves, and the end of what is in the way of nobody that is there."""
    deletes = left_behind(observed, resource, now)
    if not deletes:
        return held_up
    claim = ResourceClaim(name=resource.key.name, uid=resource.uid)
    return replace(held_up, stages=(*held_up.stages, deletes), confirm=(*held_up.confirm, claim))


def _halves(steps: Iterable[GroupStep]) -> tuple[tuple[Write, ...], ...]:
    """What takes halves of groups down: none must run beside an object of somebody else that has the name of
    its other half. Nothing else is touched until that goes.
    """
    halves = (step for step in steps if step.state.reason is Reason.WRITE_REFUSED)
    writes = tuple(write for step in halves for write in (step.leader, step.worker) if write is not None)
    return (writes,) if writes else ()


def _stages(course: Course, scene: Scene, fleet: Fleet, needs: Needs) -> tuple[tuple[Write, ...], ...]:
    """The writes in an order that is safe to be cut anywhere: records first, deletions last."""
    wishes, references, download = course.wishes, needs.references, needs.download
    checks = () if references is None else (references.job,)
    revision = scene.write(to_manifest(scene.target, scene.owner)) if course.target.is_new else None
    members = {index: step.state.members for index, step in fleet.staying.items()}
    steps = (*fleet.staying.values(), *fleet.going.values())
    # Who goes is told so before others are made: sent together, a new group was there before the one whose
    # surplus it took, and for an operator that died between the two it would have stayed so.
    lowered = (*(step for step in fleet.staying.values() if step.goes_down), *fleet.going.values())
    others = tuple(step for step in fleet.staying.values() if not step.goes_down)
    stages: list[Iterable[Write | None]] = [
        (revision,),
        (
            *shared_writes(scene, wishes.network, members),
            *((references.write, references.delete) if references is not None else ()),
            *((download.write, download.delete) if download is not None else ()),
        ),
        (step.leader for step in lowered),
        (delete for step in lowered for delete in step.ends),
        (step.worker for step in lowered),
        (step.rehearsal for step in others),
        (step.gang for step in others),
        (step.leader for step in others),
        (step.worker for step in others),
        (
            *(delete for step in steps for delete in step.deletes),
            *child_deletes(scene, (*fleet.staying, *fleet.going), checks),
            *revision_deletes(scene, course.history, kept=wishes.rollout.revisions_kept),
        ),
    ]
    kept = (tuple(write for write in stage if write is not None) for stage in stages)
    return tuple(stage for stage in kept if stage)


def _network_warnings(course: Course) -> tuple[Event, ...]:
    """What a person should know about the network that a new revision asks for."""
    target = course.target
    if course.spec is None or not (target.is_new and target.verdict.accepted) or target.revision is None:
        return ()
    texts = group_network(course.spec, target.revision.plan).warnings
    return tuple(
        Event(type=EventType.WARNING, reason=str(Reason.NETWORK_WARNING), message=text) for text in texts
    )


def _sooner(decision: Decision, look_again_s: Iterable[float]) -> Decision:
    """The decision, to be looked at again at the first of these times too."""
    own = () if decision.requeue_after_s is None else (decision.requeue_after_s,)
    return replace(decision, requeue_after_s=min((*own, *look_again_s), default=None))


def _with_retries(decision: Decision, observed: Observed, now: datetime) -> Decision:
    """The decision, to be looked at again when a write that was put off may be tried."""
    noted = [(note.retry_at, note.undone) for note in observed.notes.values() if note.retry_at is not None]
    times = [*(time for time, _ in noted), *(time + UNDONE_SHOWN for time, undone in noted if undone)]
    return _sooner(decision, (max(0.1, (time - now).total_seconds()) for time in times if time > now))


def _report(
    findings: Findings,
    now: datetime,
    stages: tuple[tuple[Write, ...], ...] = (),
    steps: Sequence[GroupStep] = (),
    warnings: Iterable[Event] = (),
) -> Decision:
    """The decision whose status says what was found."""
    old: Mapping[str, Any] = findings.resource.status
    found = status_of(findings, now)
    # What stands is within its bounds. Nearly every pass finds just that, and a cut is a sixth of its time.
    status = found if found == old else cut_to_bounds(found)
    told = (*warnings, *(event for step in steps for event in step.events))
    times = [step.requeue_after_s for step in steps if step.requeue_after_s is not None]
    reasons = {findings.verdict.reason, *(problem.reason for problem in findings.problems)}
    if Reason.NAME_CONFLICT in reasons:
        look_again_s = next_conflict_look_s(findings.resource, now)
        times += [] if look_again_s is None else [look_again_s]
    if reasons & {Reason.WAITING_FOR_VOLUME, Reason.VOLUME_NOT_SHARED}:
        times.append(claim.POLL_S)
    return Decision(
        stages=stages,
        confirm=tuple(claim for step in steps for claim in step.confirm),
        status=None if status == old else status,
        events=(
            *arrivals(old, status),
            *told,
            *transition_events(old, status, told=told),
            *chat_refused(old, status),
        ),
        requeue_after_s=min(times, default=None),
    )
