"""One pass over one ModelDeployment: everything that is seen in, everything that is to be done out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from shardwright_operator.api.constants import GroupPhase, Reason
from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.lifecycle_spec import RecoverySpec, RolloutSpec
from shardwright_operator.api.pod_spec import NetworkSpec, SchedulingSpec
from shardwright_operator.api.status import cut_to_bounds
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec, parse_spec
from shardwright_operator.build.network import group_network
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.revision import Revision, to_manifest
from shardwright_operator.decide.admission import LOOK_AGAIN_S, Admission
from shardwright_operator.decide.children import child_deletes, shared_writes
from shardwright_operator.decide.decision import Decision, Event, EventType, Write
from shardwright_operator.decide.download import Download, decide_download, model_section
from shardwright_operator.decide.fleet import Fleet, decide_fleet, possible_indices
from shardwright_operator.decide.history import History, read_history, revision_deletes
from shardwright_operator.decide.obstacles import (
    UNDONE_SHOWN,
    conflicts,
    notes_that_matter,
    overrides,
    refusals,
)
from shardwright_operator.decide.progress import Progress, progress_of
from shardwright_operator.decide.scene import GroupStep, Scene
from shardwright_operator.decide.target import DecideSettings, Target, choose_target, invalid_target
from shardwright_operator.decide.transitions import arrivals, transition_events
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.views import ResourceView
from shardwright_operator.status.conditions import Condition
from shardwright_operator.status.report import Findings, Problem, same_status, status_of
from shardwright_operator.status.verified import measured_section, plan_verified

VOLUME_POLL_S = 15.0
"""A claim is not watched: its absence is looked at again after this time."""


def decide(observed: Observed, now: datetime, settings: DecideSettings) -> Decision:
    """What to write, delete and report now."""
    resource = observed.resource
    if resource is None or resource.deleting:
        return Decision()
    owner = Owner(name=resource.key.name, namespace=resource.key.namespace, uid=resource.uid)
    history = read_history(observed, resource.uid)
    spec, target = _target(observed, resource, owner, history, settings)
    wishes = _Wishes.of(spec, resource)
    indices = possible_indices(observed, wishes.groups + wishes.rollout.surge_groups)
    observed = replace(observed, notes=notes_that_matter(observed, target.revision, indices))
    findings = Findings(
        resource=resource,
        verdict=target.verdict,
        groups=(),
        wanted_groups=wishes.groups,
        revision=target.revision.name if target.revision else "",
        image=target.revision.image if target.revision else "",
        problems=(*conflicts(observed, resource), *refusals(observed, now)),
        overrides=overrides(observed, now),
        paused=wishes.rollout.is_paused,
    )
    if target.revision is None:
        return _with_retries(_report(findings, now), observed, now)
    measured = measured_section(resource.status.get("measured"), observed.measurement, target.revision)
    download = decide_download(observed, owner, target.revision, now, retry=resource.retry)
    gang = _gang_problem(observed, target.revision)
    gate = gang or (download.problem if download is not None else None)
    findings = replace(
        findings,
        problems=(*findings.problems, *((download.problem,) if download and download.problem else ())),
        conditions=tuple(_verdicts(target.revision, download, measured)),
        sections={**model_section(spec, download), **({"measured": measured} if measured else {})},
    )
    scene = Scene(
        observed=observed,
        owner=owner,
        now=now,
        target=target.revision,
        revisions={**history.readable, target.revision.name: target.revision},
        unreadable=history.unreadable,
        fallback=history.fallback(target.revision),
        admission=wishes.admission(observed, now),
        recovery=wishes.recovery,
        held=wishes.rollout.is_paused or gate is not None,
        retry=resource.retry,
        gate=gate,
    )
    fleet, scene, progress = _fleet(scene, wishes)
    steps = (*fleet.staying.values(), *fleet.going.values())
    findings = replace(
        findings,
        groups=tuple(step.state for step in steps),
        problems=(*findings.problems, *_held_up_by(gang, steps), *_problems(progress)),
        holdup=fleet.holdup,
    )
    if any(problem.reason is Reason.NAME_CONFLICT for problem in findings.problems):
        # Half of a group must not run beside somebody else's object. Nothing else is touched until that goes.
        halves = [step for step in steps if step.state.reason is Reason.WRITE_REFUSED]
        writes = tuple(w for step in halves for w in (step.leader, step.worker) if w is not None)
        return _with_retries(_report(findings, now, (writes,) if writes else ()), observed, now)
    stages = _stages(scene, wishes, fleet, target, history, download=download)
    warnings = _network_warnings(spec, target) if spec is not None and target.is_new else ()
    look_again_s = [s for s in (progress.due_in_s, LOOK_AGAIN_S if fleet.holdup else None) if s is not None]
    decision = _report(findings, now, stages, steps, warnings)
    return _with_retries(_sooner(decision, look_again_s), observed, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wishes:
    """The parts of the spec that hold also while the rest of it is refused.

    Of a spec that cannot be read only the number of groups is taken. Nothing is rolled out meanwhile, and the
    policies stay as they are: a typo elsewhere must not open an API that ``network.clients`` had closed.
    """

    groups: int
    rollout: RolloutSpec
    recovery: RecoverySpec
    network: NetworkSpec | None
    scheduling: SchedulingSpec | None

    @classmethod
    def of(cls, spec: ModelDeploymentSpec | None, resource: ResourceView) -> "_Wishes":
        if spec is not None:
            return cls(
                groups=spec.replicas,
                rollout=spec.rollout,
                recovery=spec.recovery,
                network=spec.network,
                scheduling=spec.scheduling,
            )
        replicas = resource.spec.get("replicas", 1)
        return cls(
            groups=replicas if isinstance(replicas, int) and replicas >= 0 else 1,
            rollout=RolloutSpec(paused=True),
            recovery=RecoverySpec(),
            network=None,
            scheduling=None,
        )

    def admission(self, observed: Observed, now: datetime) -> Admission:
        """A queue for GPUs in which nobody has been let in yet."""
        return Admission(observed, now, self.scheduling)


def _target(
    observed: Observed, resource: ResourceView, owner: Owner, history: History, settings: DecideSettings
) -> tuple[ModelDeploymentSpec | None, Target]:
    revisions = tuple(history.readable.values())
    try:
        spec = parse_spec(resource.spec)
    except SpecError as error:
        return None, invalid_target(revisions, error)
    serving = any(pod.node_rank == 0 and pod.ready for pod in observed.pods)
    return spec, choose_target(observed, spec, owner, revisions, serving=serving, settings=settings)


def _fleet(scene: Scene, wishes: _Wishes) -> tuple[Fleet, Scene, Progress]:
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


def _gang_problem(observed: Observed, target: Revision) -> Problem | None:
    """Why the target's groups cannot be placed by the scheduler that the spec asks for."""
    why = None if target.gang is None else observed.gang_obstacles.get(target.gang.gang)
    if target.gang is None or why is None:
        return None
    message = f"spec.scheduling.gang is {target.gang.gang}, but {why}"
    return Problem(reason=Reason.GANG_UNAVAILABLE, message=message, stalled=True)


def _held_up_by(problem: Problem | None, steps: Iterable[GroupStep]) -> tuple[Problem, ...]:
    """The problem, if a group is held up by it: those that serve already are not."""
    serve = all(step.state.available and step.state.current for step in steps)
    return () if problem is None or serve else (problem,)


def _stages(
    scene: Scene,
    wishes: _Wishes,
    fleet: Fleet,
    target: Target,
    history: History,
    *,
    download: Download | None,
) -> tuple[tuple[Write, ...], ...]:
    """The writes in an order that is safe to be cut anywhere: records first, deletions last."""
    revision = scene.write(to_manifest(scene.target, scene.owner)) if target.is_new else None
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
            *((download.write, download.delete) if download is not None else ()),
        ),
        (step.leader for step in lowered),
        (delete for step in lowered for delete in step.ends),
        (step.worker for step in lowered),
        (step.gang for step in others),
        (step.leader for step in others),
        (step.worker for step in others),
        (
            *(delete for step in steps for delete in step.deletes),
            *child_deletes(scene, (*fleet.staying, *fleet.going)),
            *revision_deletes(scene, history, kept=wishes.rollout.revisions_kept),
        ),
    ]
    kept = (tuple(write for write in stage if write is not None) for stage in stages)
    return tuple(stage for stage in kept if stage)


def _verdicts(
    revision: Revision, download: Download | None, measured: Mapping[str, Any] | None
) -> Iterator[Condition]:
    """Conditions that only some resources have."""
    if download is not None:
        yield download.condition
    if measured is not None:
        yield plan_verified(revision.plan, measured)


def _network_warnings(spec: ModelDeploymentSpec, target: Target) -> tuple[Event, ...]:
    """What a person should know about the network that the new revision asks for."""
    if not target.verdict.accepted or target.revision is None:
        return ()
    texts = group_network(spec, target.revision.plan).warnings
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
    status = cut_to_bounds(status_of(findings, now))
    told = (*warnings, *(event for step in steps for event in step.events))
    times = [step.requeue_after_s for step in steps if step.requeue_after_s is not None]
    if findings.verdict.reason is Reason.WAITING_FOR_VOLUME:
        times.append(VOLUME_POLL_S)
    return Decision(
        stages=stages,
        confirm=tuple(claim for step in steps for claim in step.confirm),
        status=None if same_status(status, old) else status,
        events=(*arrivals(old, status), *told, *transition_events(old, status, told=told)),
        requeue_after_s=min(times, default=None),
    )
