"""Rules of groups: who may stand beside whom, how many there may be, and what they may take."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from replay import Step, replay
from sights import Child, Deployment, GroupKey, GroupSet, Node, Pod, Sight
from violations import Violation, clock

LAG_S = 30.0
"""For how long after a change the operator may act on what stood before: its watches are cut and held."""


def side_by_side(sights: Iterable[Sight]) -> Iterator[Violation]:
    """No pod of an earlier attempt, or of another revision, is there when a group starts."""
    for step in replay(sights):
        thing, world, at = step.sight.thing, step.world, step.sight.at
        raised = step.raised
        if raised is not None and raised.is_leader:
            old = world.by_group[raised.group].values()
            if old:
                evidence = (_set(raised, step), *(_pod(pod) for pod in old))
                yield Violation(
                    rule="a group starts beside its old pods",
                    about=str(raised.group),
                    at=at,
                    evidence=evidence,
                )
        elif raised is not None and not world.is_up(raised.group):
            yield Violation(
                rule="workers start without a leader",
                about=str(raised.group),
                at=at,
                evidence=(_set(raised, step),),
            )
        if isinstance(thing, Pod) and step.before is None and not step.sight.gone:
            others = [p for p in world.by_group[thing.group].values() if p.pods_hash != thing.pods_hash]
            if others:
                evidence = (f"{_pod(thing)} was made at {step.sight.version}", *map(_pod, others))
                yield Violation(
                    rule="pods of two revisions side by side",
                    about=str(thing.group),
                    at=at,
                    evidence=evidence,
                )


def too_many_groups(sights: Iterable[Sight], *, lag_s: float = LAG_S) -> Iterator[Violation]:
    """No group is started beyond what is asked plus the surge that is allowed."""
    asked: defaultdict[str, _Recent] = defaultdict(_Recent)
    for step in replay(sights):
        thing, at = step.sight.thing, step.sight.at
        if isinstance(thing, Deployment):
            asked[thing.name].put(at, 0 if step.sight.gone or thing.going else thing.replicas + thing.surge)
        raised = step.raised
        if raised is None or not raised.is_leader:
            continue
        resource = raised.group.resource
        most = asked[resource].most(at - lag_s)
        up = step.world.groups_up(resource)
        if len(up) > most:
            told = f"{len(up)} groups are up: {', '.join(group.index for group in up)}"
            evidence = (
                _set(raised, step),
                told,
                f"at most {most} with surge were asked for since {lag_s:g} s",
            )
            yield Violation(rule="more groups than asked for", about=resource, at=at, evidence=evidence)


def more_gpus_than_there_are(sights: Iterable[Sight], *, lag_s: float = LAG_S) -> Iterator[Violation]:
    """No group is started for which there are no GPUs, one apart: an autoscaler has to see that one."""
    pool = _Recent()
    for step in replay(sights):
        thing, world, at = step.sight.thing, step.world, step.sight.at
        if isinstance(thing, Node):
            pool.put(at, sum(node.gpus for node in world.nodes.values()))
        raised = step.raised
        if raised is None or not raised.ours:
            continue
        asked = {group: _asked(step, group) for group in {group for group, _ in world.sets}}
        most = pool.most(at - lag_s) + max(asked.values())
        if sum(asked.values()) > most:
            each = ", ".join(f"{group} {gpus}" for group, gpus in sorted(asked.items()) if gpus)
            evidence = (_set(raised, step), f"GPUs asked for: {each}", f"GPUs there and one group: {most}")
            yield Violation(
                rule="more GPUs than there are", about=str(raised.group), at=at, evidence=evidence
            )


def made_for_the_gone(sights: Iterable[Sight], *, lag_s: float = LAG_S) -> Iterator[Violation]:
    """No child is made for a resource that is gone: Kubernetes would have to collect it again and again."""
    for step in replay(sights):
        thing, at, ended = step.sight.thing, step.sight.at, step.world.ended
        if not isinstance(thing, Child | GroupSet) or step.sight.gone or step.world.born[thing.uid] < at:
            continue
        late_s = at - ended.get(thing.owner_uid, at)
        if late_s > lag_s:
            told = f"{thing.name} was made {late_s:.1f} s after its owner {thing.owner_uid} had gone"
            about = thing.resource if isinstance(thing, Child) else thing.group.resource
            yield Violation(rule="a child of a resource that is gone", about=about, at=at, evidence=(told,))


def taken_down_for_nothing(sights: Sequence[Sight], *, lag_s: float = LAG_S) -> Iterator[Violation]:
    """A group goes down only when it is broken, or unwanted, or outdated, or on a node that is to be left."""
    lives: dict[GroupKey, _Life] = {}
    edits: defaultdict[str, list[float]] = defaultdict(list)
    for step in replay(sights):
        world, at = step.world, step.sight.at
        _note(step, lives, edits)
        if (raised := step.raised) is not None and raised.is_leader:
            lives[raised.group] = _Life(began=at)
        dropped = step.dropped
        if dropped is None or not dropped.is_leader or not dropped.ours:
            continue
        life = lives.pop(dropped.group, None)
        if life is None or life.troubles:
            continue
        pods = world.by_group[dropped.group].values()
        nodes = [world.nodes.get(pod.node) for pod in pods]
        if any(edited >= life.began - lag_s for edited in edits[dropped.group.resource]):
            continue
        if any(node is None or node.cordoned or not node.ready for node in nodes):
            continue
        worker = world.worker(dropped.group)
        if len(pods) < 1 + (worker.wanted if worker is not None else 0):
            continue
        evidence = (_set(dropped, step), f"up since {clock(life.began)}", *(_pod(pod) for pod in pods))
        yield Violation(
            rule="a group is taken down for nothing", about=str(dropped.group), at=at, evidence=evidence
        )


@dataclass(slots=True)
class _Life:
    """One formation of a group."""

    began: float
    troubles: int = 0


def _note(step: Step, lives: dict[GroupKey, _Life], edits: defaultdict[str, list[float]]) -> None:
    """Note what may be the cause of a group's end."""
    sight, before = step.sight, step.before
    match sight.thing:
        case Pod() as pod:
            if pod.group in lives and (sight.gone or pod.going or pod.finished or pod.ended or pod.restarts):
                lives[pod.group].troubles += 1
        case GroupSet() as changed:
            if changed.group in lives and (sight.gone or changed.going or not changed.ours):
                lives[changed.group].troubles += 1
        case Deployment() as resource:
            edited = isinstance(before, Deployment) and before.generation != resource.generation
            if sight.gone or resource.going or edited:
                edits[resource.name].append(sight.at)
        case Child() as child:
            if child.kind == "ControllerRevision" and sight.gone:
                edits[child.resource].append(sight.at)


class _Recent:
    """A number that changes, and the highest that it has been of late."""

    def __init__(self) -> None:
        self._values: list[tuple[float, int]] = []

    def put(self, at: float, value: int) -> None:
        if not self._values or self._values[-1][1] != value:
            self._values.append((at, value))

    def most(self, since: float) -> int:
        """The highest value that stood at any time since then."""
        before = [value for at, value in self._values if at < since][-1:]
        return max((*before, *(value for at, value in self._values if at >= since)), default=0)


def _asked(step: Step, group: GroupKey) -> int:
    """GPUs that a group asks for: of its pods, and of those that its sets are about to make."""
    pods = [pod for pod in step.world.by_group[group].values() if not pod.finished]
    # A pod whose node is gone holds none of the GPUs that are there.
    asked = sum(pod.gpus for pod in pods if not pod.node or pod.node in step.world.nodes)
    sets = [s for s in (step.world.leader(group), step.world.worker(group)) if s is not None and s.wanted]
    to_come = sum(s.wanted for s in sets) - len(pods)
    return asked + max(0, to_come) * max((s.pod_gpus for s in sets), default=0)


def _set(group_set: GroupSet, step: Step) -> str:
    what = f"{group_set.name} ({group_set.uid[:8]}) wants {group_set.wanted}"
    return f"{what}, pods {group_set.pods_hash}, at version {step.sight.version}"


def _pod(pod: Pod) -> str:
    flags = [name for name in ("ready", "going", "finished", "ended") if getattr(pod, name)]
    return f"{pod.name} ({pod.uid[:8]}) of pods {pod.pods_hash} on {pod.node or 'no node'}: {' '.join(flags)}"
