"""What the operator would do about a changed spec: computed by its own decisions, so that both agree.

The plan is pinned in a revision and pods restart only for what alters pods; how that comes out for one edit
is not obvious from the edit. Here the operator's own choice of a target is asked, with the revisions and
groups that stand.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwright_operator.api.constants import ConditionType, Reason, Role
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.build.revision import Revision
from shardwright_operator.cli.first_pass import applied, first_pass, new_resource
from shardwright_operator.cli.pod_changes import pod_changes
from shardwright_operator.decide.drift import difference
from shardwright_operator.decide.history import read_history
from shardwright_operator.decide.record import Record
from shardwright_operator.decide.room import Room
from shardwright_operator.decide.target import DecideSettings, Target, choose_target
from shardwright_operator.observe.conditions import condition_of
from shardwright_operator.observe.need import Need
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.views import GANG_KINDS, ChildKind, Key
from shardwright_operator.settings import installed_version

_OF_THE_PODS = frozenset({ChildKind.REVISION, ChildKind.STATEFUL_SET, *GANG_KINDS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What stands before the change: which revision each group runs, and the stored ones."""

    observed: Observed
    runs: Mapping[int, Revision | None]
    """By group; None for a revision that cannot be read."""
    revisions: tuple[Revision, ...]
    serving: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What would happen."""

    message: str
    """Of the condition PlanAccepted."""
    accepted: bool
    old: Revision | None
    new: Revision | None
    now: int
    """Groups that there are."""
    then: int
    """Groups that there would be."""
    wanted: int | None = None
    """Groups that the resource asks for already; some may still wait to be made. None before there is one."""
    restarting: tuple[int, ...] = ()
    held: bool = False
    """Whether restarts are held back, since the rollout is paused."""
    under_way: bool = False
    """Whether the operator restarts them already, or holds that back, since it has chosen this revision."""
    word: str = ""
    """The operator's own of such a rollout: reason and message of ``Ready``, where they tell more."""
    pods: tuple[str, ...] = ()
    """What differs in the pods."""
    others: tuple[str, ...] = ()
    """Objects that change without a restart, each with its first difference."""
    gpus_now: int = 0
    gpus_then: int = 0
    free_gpus: int | None = None
    """On nodes that the new pods may use; None where that is not known."""
    to_place: int = 0
    """Groups that need a place: new ones, and those that restart."""
    placed: int | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether the operator would do nothing that it does not do, or wait to do, already."""
        return (
            self.accepted
            and self.new == self.old
            and self.then in {self.now, self.wanted}
            and (self.under_way or not self.restarting)
            and not self.others
        )


def first_sight(key: Key, spec: Mapping[str, Any], parsed: ModelDeploymentSpec) -> Before:
    """As if a spec had been applied to an empty cluster and all its groups had come up."""
    resource = new_resource(key, spec)
    observed = Observed(key=key, resource=resource)
    target = choose_target(observed, parsed, resource.owner, (), serving=False, settings=_settings())
    revision = target.revision
    return Before(
        observed=observed,
        runs=dict.fromkeys(range(parsed.replicas), revision) if revision else {},
        revisions=(revision,) if revision else (),
        serving=revision is not None,
    )


def standing(observed: Observed) -> Before:
    """What stands in a cluster."""
    if observed.resource is None:
        return Before(observed=observed, runs={}, revisions=(), serving=False)
    history = read_history(observed, observed.resource.uid)
    runs = {}
    for child in observed.children.values():
        if child.kind is not ChildKind.STATEFUL_SET or child.role is not Role.LEADER or child.group is None:
            continue
        record = Record.of(child)
        if child.desired_replicas or record.cause != Reason.SCALING_DOWN:
            runs[child.group] = history.readable.get(record.revision)
    return Before(
        observed=observed,
        runs=dict(sorted(runs.items())),
        revisions=tuple(history.readable.values()),
        serving=any(pod.node_rank == 0 and pod.ready for pod in observed.pods),
    )


def change(before: Before, raw: Mapping[str, Any], spec: ModelDeploymentSpec) -> Change:
    """What the operator would do when the resource had this spec."""
    key, live = before.observed.key, before.observed.resource
    resource = new_resource(key, raw) if live is None else replace(live, spec=raw)
    observed = replace(before.observed, resource=resource)
    target = choose_target(
        observed,
        spec,
        resource.owner,
        before.revisions,
        serving=before.serving,
        settings=_settings(before.revisions),
    )
    return _change(before, observed, spec, target)


def _change(before: Before, observed: Observed, spec: ModelDeploymentSpec, target: Target) -> Change:
    old = max((r for r in before.revisions), key=lambda r: r.number, default=None)
    new = target.revision
    kept = list(before.runs)[: spec.replicas]
    outdated = [
        i for i in kept if (run := before.runs[i]) is None or new is None or run.pods_hash != new.pods_hash
    ]
    restarting = tuple(outdated) if new is not None else ()
    held = spec.rollout.is_paused and bool(restarting)
    under_way = new == old and spec.rollout.is_paused == _is_paused(before.observed) and bool(restarting)
    moving = () if held else restarting
    added = max(0, spec.replicas - len(before.runs)) if new is not None else 0
    leaving = list(before.runs)[spec.replicas :]
    staying = sum(_gpus(before.runs[i]) for i in kept if i not in moving)
    found = Change(
        message=target.verdict.message,
        accepted=target.verdict.accepted,
        old=old,
        new=new,
        now=len(before.runs),
        then=spec.replicas if new is not None else 0,
        wanted=_wanted(before.observed),
        restarting=restarting,
        held=held,
        under_way=under_way,
        word=_word(before.observed) if under_way and not held else "",
        pods=_pods(before, new, restarting),
        others=_others(before.observed, observed) if target.verdict.accepted else (),
        gpus_now=sum(map(_gpus, before.runs.values())),
        gpus_then=staying + (added + len(moving)) * _gpus(new),
        to_place=added + len(moving),
    )
    return found if new is None else _placed(found, observed, spec, new, [*moving, *leaving])


def _is_paused(observed: Observed) -> bool:
    """Whether the resource holds changes back as it stands."""
    resource = observed.resource
    return resource is not None and bool((resource.spec.get("rollout") or {}).get("paused"))


def _word(observed: Observed) -> str:
    """Why the resource is not Ready, other than that a rollout is under way."""
    ready = {} if observed.resource is None else condition_of(observed.resource.status, ConditionType.READY)
    if ready.get("status") != "False" or ready.get("reason") == Reason.ROLLING_OUT:
        return ""
    return f"{ready.get('reason')}: {ready.get('message')}"


def _wanted(observed: Observed) -> int | None:
    resource = observed.resource
    return None if resource is None else int(resource.spec.get("replicas", 1))


def _placed(
    found: Change, observed: Observed, spec: ModelDeploymentSpec, new: Revision, giving_back: list[int]
) -> Change:
    capacity = observed.capacity
    if capacity is None:
        return found
    need = Need(pods=new.members, pod_gpus=new.plan.gpus_per_node, pool=new.pool, scheduling=spec.scheduling)
    room = Room.of(capacity.ground, capacity.taken)
    reach = need.reach(capacity.ground)
    free = sum(gpus for node, gpus in room.free.items() if node in reach)
    given: Counter[str] = Counter()
    for pod in observed.pods:
        if pod.group in giving_back and pod.node:
            given[pod.node] += pod.gpus
    room, placed = room.more(given), 0
    while placed < found.to_place and room.fits(need):
        room, placed = room.less(need), placed + 1
    return replace(found, free_gpus=free, placed=placed)


def _pods(before: Before, new: Revision | None, restarting: tuple[int, ...]) -> tuple[str, ...]:
    old = next((run for i in restarting if (run := before.runs[i]) is not None), None)
    if old is None or new is None:
        return ()
    leader = pod_changes(old.leader_template, new.leader_template)
    worker = pod_changes(old.worker_template, new.worker_template)
    size = [f"pods of a group: {old.members} -> {new.members}"] if old.members != new.members else []
    gang = [f"placed as a group by: {_placed_by(old)} -> {_placed_by(new)}"] if old.gang != new.gang else []
    own = [line for line in worker if line not in leader] if old.members == new.members else []
    return tuple(dict.fromkeys((*size, *gang, *leader, *(f"workers: {line}" for line in own))))


def _placed_by(revision: Revision) -> str:
    """The scheduler that places a group as a whole, with its queue."""
    return "nobody" if revision.gang is None else f"{revision.gang.gang} {revision.gang.queue}".rstrip()


def _others(before: Observed, after: Observed) -> tuple[str, ...]:
    """Children other than the sets, as they would be made for both specs on an empty cluster."""
    if before.resource is None:
        return ()
    old, new = _first_writes(before), _first_writes(after)
    lines = []
    for place in dict.fromkeys((*old, *new)):
        name = f"{place[0]} {place[1]}"
        if place not in old or place not in new:
            if place[0] == "Job" or place[0] == "ConfigMap":
                lines.append(f"{name} {'is made' if place in new else 'goes'}")
        elif first := difference(new[place], old[place]):
            lines.append(f"{name}: {first}")
    return tuple(lines)


def _first_writes(observed: Observed) -> dict[tuple[str, str], Any]:
    empty = Observed(key=observed.key, resource=observed.resource, nodes=observed.nodes, claim=observed.claim)
    writes = applied(first_pass(empty, _settings()))
    return {(str(w.kind), w.name): w.manifest for w in writes if w.kind not in _OF_THE_PODS}


def _gpus(revision: Revision | None) -> int:
    return revision.plan.gpus_per_replica if revision is not None else 0


def _settings(revisions: Sequence[Revision] = ()) -> DecideSettings:
    """As the operator has them: its version is a part of every revision, and most likely it made the last."""
    latest = max(revisions, key=lambda r: r.number, default=None)
    return DecideSettings(operator_version=latest.operator_version if latest else installed_version())
