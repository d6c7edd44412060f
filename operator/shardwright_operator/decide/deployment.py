"""One pass over one ModelDeployment: everything that is seen in, everything that is to be done out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from shardwright_operator.api.constants import GroupPhase, Reason
from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.lifecycle_spec import RecoverySpec, RolloutSpec
from shardwright_operator.api.pod_spec import NetworkSpec
from shardwright_operator.api.status import cut_to_bounds
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec, parse_spec
from shardwright_operator.build.network import group_network
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.revision import Revision, RevisionError, from_manifest, to_manifest
from shardwright_operator.decide.children import (
    child_deletes,
    revision_deletes,
    shared_writes,
    wanted_names,
)
from shardwright_operator.decide.decision import Decision, Event, EventType, Write
from shardwright_operator.decide.group import decide_group
from shardwright_operator.decide.scene import GroupStep, Scene
from shardwright_operator.decide.target import DecideSettings, Target, choose_target, invalid_target
from shardwright_operator.decide.transitions import transition_events
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.views import (
    ChildKind,
    ChildView,
    Key,
    ResourceView,
    WriteNote,
)
from shardwright_operator.status.group import GroupState
from shardwright_operator.status.report import Findings, Problem, same_status, status_of

VOLUME_POLL_S = 15.0
"""A claim is not watched: its absence is looked at again after this time."""


def decide(observed: Observed, now: datetime, settings: DecideSettings) -> Decision:
    """What to write, delete and report now."""
    resource = observed.resource
    if resource is None or resource.deleting:
        return Decision()
    owner = Owner(name=resource.key.name, namespace=resource.key.namespace, uid=resource.uid)
    stored = _stored_revisions(observed, resource.uid)
    spec, target = _target(observed, resource, owner, stored, settings)
    wishes = _Wishes.of(spec, resource)
    observed = replace(observed, notes=_notes_that_matter(observed, target, wishes.groups))
    findings = Findings(
        resource=resource,
        verdict=target.verdict,
        groups=(),
        wanted_groups=wishes.groups,
        revision=target.revision.name if target.revision else "",
        image=target.revision.image if target.revision else "",
        problems=(*_conflicts(observed, resource), *_refusals(observed, now)),
        paused=wishes.rollout.is_paused,
    )
    if target.revision is None:
        return _with_retries(_report(findings, now), observed, now)
    scene = Scene(
        observed=observed,
        owner=owner,
        now=now,
        target=target.revision,
        revisions={**stored.readable, target.revision.name: target.revision},
        unreadable=stored.unreadable,
        recovery=wishes.recovery,
        paused=wishes.rollout.is_paused,
        retry=resource.retry,
    )
    steps = _group_steps(scene, wishes)
    states = (*(step.state for step in steps), *_leaving(scene, wishes.groups))
    findings = replace(findings, groups=states)
    if any(problem.reason is Reason.NAME_CONFLICT for problem in findings.problems):
        # Half of a group must not run beside somebody else's object. Nothing else is touched until that goes.
        halves = [step for step in steps if step.state.reason is Reason.WRITE_REFUSED]
        writes = tuple(w for step in halves for w in (step.leader, step.worker) if w is not None)
        return _with_retries(_report(findings, now, (writes,) if writes else ()), observed, now)
    stages = _stages(scene, wishes, steps, target)
    warnings = _network_warnings(spec, target) if spec is not None and target.is_new else ()
    return _with_retries(_report(findings, now, stages, steps, warnings), observed, now)


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

    @classmethod
    def of(cls, spec: ModelDeploymentSpec | None, resource: ResourceView) -> "_Wishes":
        if spec is not None:
            return cls(
                groups=spec.replicas, rollout=spec.rollout, recovery=spec.recovery, network=spec.network
            )
        replicas = resource.spec.get("replicas", 1)
        return cls(
            groups=replicas if isinstance(replicas, int) and replicas >= 0 else 1,
            rollout=RolloutSpec(paused=True),
            recovery=RecoverySpec(),
            network=None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    readable: Mapping[str, Revision]
    unreadable: frozenset[str]


@lru_cache(maxsize=512)
def _read_revision(packed: bytes, name: str) -> Revision | None:
    """A revision's data never changes, so it is parsed once and not in every pass."""
    body = ChildView(
        kind=ChildKind.REVISION,
        key=Key("", ""),
        name=name,
        uid="",
        resource_version=0,
        owner_uid="",
        packed_body=packed,
    ).body
    try:
        return from_manifest({**body, "metadata": {**body.get("metadata", {}), "name": name}})
    except RevisionError:
        return None


def _stored_revisions(observed: Observed, owner_uid: str) -> _Stored:
    readable: dict[str, Revision] = {}
    unreadable = set()
    for child in observed.children.values():
        if child.kind is ChildKind.REVISION and child.owner_uid == owner_uid and not child.deleting:
            revision = _read_revision(child.packed_body, child.name)
            if revision is None:
                unreadable.add(child.name)
            else:
                readable[child.name] = revision
    return _Stored(readable=readable, unreadable=frozenset(unreadable))


def _target(
    observed: Observed, resource: ResourceView, owner: Owner, stored: _Stored, settings: DecideSettings
) -> tuple[ModelDeploymentSpec | None, Target]:
    revisions = tuple(stored.readable.values())
    try:
        spec = parse_spec(resource.spec)
    except SpecError as error:
        return None, invalid_target(revisions, error)
    serving = any(pod.node_rank == 0 and pod.ready for pod in observed.pods)
    return spec, choose_target(observed, spec, owner, revisions, serving=serving, settings=settings)


def _group_steps(scene: Scene, wishes: _Wishes) -> list[GroupStep]:
    """A step for each wanted group. Healthy groups of an older revision go down within the budget only."""
    steps = [decide_group(scene, index, may_roll=False) for index in range(wishes.groups)]
    budget = wishes.rollout.unavailable_groups - sum(not step.state.available for step in steps)
    for place, step in enumerate(steps):
        if budget <= 0:
            break
        if step.state.available and not step.state.current and not scene.paused:
            steps[place] = decide_group(scene, place, may_roll=True)
            budget -= 1
    return steps


def _leaving(scene: Scene, wanted: int) -> list[GroupState]:
    """Groups beyond the wanted number that still have sets or pods."""
    observed = scene.observed
    indices = {c.group for c in observed.children.values() if c.kind is ChildKind.STATEFUL_SET}
    indices |= {pod.group for pod in observed.pods}
    return [
        GroupState(
            index=index,
            phase=GroupPhase.TERMINATING,
            reason=Reason.SCALING_DOWN,
            message="is being removed",
            revision="",
            current=True,
            restarts=0,
            members=sum(pod.group == index for pod in observed.pods),
            ready_members=0,
            nodes=tuple(pod.node for pod in observed.pods if pod.group == index and pod.node),
        )
        for index in sorted(i for i in indices if i is not None and i >= wanted)
    ]


def _stages(
    scene: Scene, wishes: _Wishes, steps: Sequence[GroupStep], target: Target
) -> tuple[tuple[Write, ...], ...]:
    """The writes in an order that is safe to be cut anywhere: records first, deletions last."""
    revision = scene.write(to_manifest(scene.target, scene.owner)) if target.is_new else None
    members = [step.state.members for step in steps]
    stages: list[Iterable[Write | None]] = [
        (revision,),
        shared_writes(scene, wishes.network, members),
        (step.leader for step in steps),
        (step.worker for step in steps),
        (
            *(delete for step in steps for delete in step.deletes),
            *child_deletes(scene, wishes.groups),
            *revision_deletes(scene),
        ),
    ]
    kept = (tuple(write for write in stage if write is not None) for stage in stages)
    return tuple(stage for stage in kept if stage)


def _network_warnings(spec: ModelDeploymentSpec, target: Target) -> tuple[Event, ...]:
    """What a person should know about the network that the new revision asks for."""
    if not target.verdict.accepted or target.revision is None:
        return ()
    texts = group_network(spec, target.revision.plan).warnings
    return tuple(
        Event(type=EventType.WARNING, reason=str(Reason.NETWORK_WARNING), message=text) for text in texts
    )


def _conflicts(observed: Observed, resource: ResourceView) -> list[Problem]:
    """Objects that hold our children's names and are not ours. None is ever adopted or deleted."""
    problems = []
    for child in observed.children.values():
        if child.owner_uid == resource.uid:
            continue
        text = f"{child.kind} {child.name} carries this resource's label but has "
        if child.owner_uid or child.deleting:
            # Most likely of a resource of the same name that was just deleted, and about to go with it.
            text += "another owner; waiting until Kubernetes has removed it with that owner"
        else:
            text += (
                "no owner; delete it (it was left behind when its owner was deleted), or rename this resource"
            )
        stalled = not child.owner_uid and not child.deleting
        problems.append(Problem(reason=Reason.NAME_CONFLICT, message=text, stalled=stalled))
    for note in observed.notes.values():
        if note.foreign:
            text = f"{note.kind} {note.name} exists already and belongs to somebody else ({note.refused})"
            remedy = "rename this resource, or delete that object"
            problems.append(Problem(reason=Reason.NAME_CONFLICT, message=f"{text}; {remedy}", stalled=True))
    return problems


def _notes_that_matter(
    observed: Observed, target: Target, groups: int
) -> dict[tuple[ChildKind, str], WriteNote]:
    """Notes about children that are still wanted: the rest is past, after a scale-down for one."""
    if not observed.notes:
        return {}
    wanted = wanted_names(observed.key.name, groups)
    revision = target.revision.name if target.revision else ""
    return {
        place: note
        for place, note in observed.notes.items()
        if note.name == revision or (note.name in wanted and note.kind is not ChildKind.REVISION)
    }


def _refusals(observed: Observed, now: datetime) -> list[Problem]:
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


def _with_retries(decision: Decision, observed: Observed, now: datetime) -> Decision:
    """The decision, to be looked at again when a write that was put off may be tried."""
    times = (note.retry_at for note in observed.notes.values() if note.retry_at is not None)
    delays = [max(0.1, (time - now).total_seconds()) for time in times if time > now]
    if decision.requeue_after_s is not None:
        delays.append(decision.requeue_after_s)
    return replace(decision, requeue_after_s=min(delays, default=None))


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
        events=(*told, *transition_events(old, status, told=told)),
        requeue_after_s=min(times, default=None),
    )
