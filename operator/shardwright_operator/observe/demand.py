"""Which groups of a resource wait for GPUs, as others have to know it to keep out of their way.

Two resources that want the same nodes at the same moment would each get half of what they need, and both
would wait for ever. So each sees the other's demand: pods that its sets want and that no node has taken, and
groups that it holds back.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any

from pydantic import ValidationError

from shardwright_operator.api.constants import Annotation, GroupPhase, Reason
from shardwright_operator.api.pod_spec import SchedulingSpec
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.observe.need import Need
from shardwright_operator.observe.observed import Demand
from shardwright_operator.observe.pools import selection_of
from shardwright_operator.observe.views import ChildKind, ChildView, Key, PodView, ResourceView
from shardwright_planner import PlanInputError, find_gpu

_WAITING = {
    (GroupPhase.PENDING, Reason.WAITING_FOR_CAPACITY),
    (GroupPhase.RESTARTING, Reason.DRAINING),
}

Look = Callable[[Key], tuple[ResourceView | None, Iterable[ChildView], Iterable[PodView]]]
"""A resource with its children and pods, by key."""


class DemandBook:
    """Demands of all resources, made anew for those of which something has changed."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._known: dict[Key, tuple[Demand, ...]] = {}
        self._changed: set[Key] = set()
        self._starting: dict[Key, tuple[Demand, ...]] = {}

    def starting(self, key: Key, demands: tuple[Demand, ...]) -> None:
        """Groups of a resource whose sets are being written, until the pass that does so is over."""
        if demands:
            self._starting[key] = demands
        else:
            self._starting.pop(key, None)

    def changed(self, key: Key) -> None:
        """Something that the demands of a resource are made from is no longer the same."""
        self._changed.add(key)

    def demands(self) -> tuple[Demand, ...]:
        """Demands of all resources."""
        known = tuple(chain.from_iterable(self._current().values()))
        coming = {(d.key, d.group): d for each in self._starting.values() for d in each}
        if not coming:
            return known
        others = (d for d in known if (d.key, d.group) not in coming)
        return (*others, *filter(None, map(self._yet_to_come, coming.values())))

    def _yet_to_come(self, demand: Demand) -> Demand | None:
        """What of a group that is being made has no node yet: its sets may stand already, or one of them."""
        _, _, pods = self._look(demand.key)
        placed = sum(pod.group == demand.group and bool(pod.node) for pod in pods)
        left = demand.need.pods - placed
        return replace(demand, need=replace(demand.need, pods=left)) if left > 0 else None

    def waiting(self) -> frozenset[Key]:
        """Resources with groups that are held back until there are GPUs."""
        return frozenset(k for k, found in self._current().items() if not all(d.admitted for d in found))

    def has_eased(self, key: Key) -> bool:
        """Whether a resource wants fewer pods than when its demands were last made."""
        known = self._known.get(key)
        if known is None or key not in self._changed:
            return False
        return _pods(demands_of(*self._look(key))) < _pods(known)

    def _current(self) -> Mapping[Key, tuple[Demand, ...]]:
        for key in self._changed:
            found = demands_of(*self._look(key))
            if found:
                self._known[key] = found
            else:
                self._known.pop(key, None)
        self._changed.clear()
        return self._known


def demands_of(
    resource: ResourceView | None, children: Iterable[ChildView], pods: Iterable[PodView]
) -> tuple[Demand, ...]:
    """What one resource waits for, group by group."""
    if resource is None or resource.deleting:
        return ()
    sets = defaultdict(list)
    for child in children:
        if (
            child.kind is ChildKind.STATEFUL_SET
            and child.owner_uid == resource.uid
            and child.group is not None
            and child.desired_replicas
        ):
            sets[child.group].append(child)
    members = defaultdict(list)
    for pod in pods:
        members[pod.group].append(pod)
    found = [
        _demand(resource, group, missing, own[0].pod_gpus, admitted=True, since=_since(members[group]))
        for group, own in sorted(sets.items())
        if (missing := _unplaced(own, members[group])) > 0
    ]
    plan = resource.status.get("plan") or {}
    found += [
        _demand(resource, group, plan.get("nodes", 1), plan.get("gpusPerNode", 0), admitted=False, since=None)
        for group in _held(resource.status)
        if group not in sets
    ]
    return tuple(found)


def _pods(demands: Iterable[Demand]) -> int:
    return sum(demand.need.pods for demand in demands)


def _demand(
    resource: ResourceView, group: int, pods: int, pod_gpus: int, *, admitted: bool, since: datetime | None
) -> Demand:
    return Demand(
        key=resource.key,
        group=group,
        created_at=resource.created_at,
        need=Need(
            pods=pods,
            pod_gpus=pod_gpus,
            pool=_pool(str((resource.status.get("plan") or {}).get("gpu", ""))),
            scheduling=_scheduling(json.dumps(resource.spec.get("scheduling"), sort_keys=True)),
        ),
        admitted=admitted,
        since=since,
    )


def _unplaced(sets: Sequence[ChildView], pods: Sequence[PodView]) -> int:
    """Pods of a group that are to find a node; a formed group that has lost one goes down, and wants none."""
    homeless = sum(not pod.node for pod in pods)
    if any(Annotation.MEMBERS in child.annotations for child in sets):
        return homeless
    return homeless + max(0, sum(child.desired_replicas for child in sets) - len(pods))


def _since(pods: Iterable[PodView]) -> datetime | None:
    return min((pod.created_at for pod in pods if not pod.node), default=None)


def _held(status: Mapping[str, Any]) -> list[int]:
    """Groups of which the status says that they wait; it is written in the pass that holds them back.

    One that has left a cordoned node is on its way to the room that it was seen to have elsewhere.
    """
    return [
        group["index"]
        for group in status.get("groups") or ()
        if (group.get("phase"), group.get("reason")) in _WAITING
    ]


@lru_cache(maxsize=256)
def _pool(gpu: str) -> PoolSelection:
    """The pool of a GPU by its planned name; any node while no plan is known."""
    try:
        return selection_of(find_gpu(gpu)) if gpu else PoolSelection()
    except PlanInputError:
        return PoolSelection()


@lru_cache(maxsize=256)
def _scheduling(text: str) -> SchedulingSpec:
    """Where the resource's pods may run, by that part of its spec as JSON; anywhere if it cannot be read."""
    try:
        return SchedulingSpec.model_validate(json.loads(text) or {})
    except (ValidationError, ValueError):
        return SchedulingSpec()
