"""Whose turn it is when groups compete for GPUs.

Pods of two groups that are made at the same moment each take half of the nodes, and both groups wait for
ever. So as long as any of our groups waits for the nodes that another one wants, a group is made only when
all of it fits; the first in the queue is made in any case, so that a cluster autoscaler sees pods that wait.
A group that has half of its nodes and cannot get the rest gives them back when another could run on them.
Where a gang scheduler places groups none of this is needed, and it alone decides.

A higher priority comes first, as it does for the scheduler: what its groups wait for is not taken by smaller
ones of a lower priority, even if it does not suffice yet. The first in the queue is made in any case, and the
scheduler then makes room for it by preemption. Of one priority, the older resource comes first.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice

from shardwright_operator.api.pod_spec import SchedulingSpec
from shardwright_operator.build.revision import Revision
from shardwright_operator.decide.delay import spread
from shardwright_operator.decide.room import Room
from shardwright_operator.observe.need import Need
from shardwright_operator.observe.observed import CapacityView, Demand, Observed
from shardwright_operator.observe.views import Key, PodView

RELEASE_S = 300.0
"""How long a group may hold a part of its nodes while another of ours could run on them; up to half as much
is added, by identity, so that of two such groups one gives way. An autoscaler's node takes 2 to 5 minutes."""

LOOK_AGAIN_S = 30.0
"""A group that waits is looked at again at least so often; GPUs that come free wake it at once."""


class Admission:
    """The queue for GPUs as one resource sees it in one pass. It remembers whom it has let in."""

    def __init__(self, observed: Observed, now: datetime, scheduling: SchedulingSpec | None) -> None:
        """``scheduling`` None, of a spec that cannot be read, admits everybody: nothing new starts then."""
        self._observed = observed
        self._now = now
        self._scheduling = scheduling or SchedulingSpec()
        self._holds = scheduling is not None and self._scheduling.holds
        self._priority = self._priority_of(self._scheduling)
        self._let_in: dict[int, Need] = {}
        self._refused: dict[int, Need] = {}
        self._expected: dict[int, Need] = {}

    @property
    def is_open(self) -> bool:
        """Whether groups are made without a look at free GPUs: nobody knows them, or the user wants it so."""
        return self._observed.capacity is None or not self._holds

    def refusal(self, index: int, revision: Revision) -> str:
        """Why a group may not be made now, in words; empty when it may."""
        capacity = self._observed.capacity
        if index in self._let_in:
            return ""
        if capacity is None or self.is_open:
            self.let_in(index, revision)
            return ""
        need = self._need(revision)
        ahead = [d for d in self._rivals(capacity, need, but=index) if self._comes_first(d)]
        siblings = [f"group {other}" for other in (*self._let_in, *self._refused) if other != index]
        room = self._room_behind(capacity, ahead, need)
        if not (ahead or siblings) or room.fits(need):
            self.let_in(index, revision)
            return ""
        self._refused[index] = need
        first = self._name(min(ahead, key=self._turn)) if ahead else siblings[0]
        return f"waits for {_missing(room, need, revision.plan.gpu)}; {first} comes first"

    @property
    def starts(self) -> tuple[Demand, ...]:
        """The groups that were let in, as others have to know them."""
        resource = self._observed.resource
        if resource is None:
            return ()
        return tuple(
            Demand(key=resource.key, group=index, created_at=resource.created_at, need=need, admitted=True)
            for index, need in sorted(self._let_in.items())
        )

    def let_in(self, index: int, revision: Revision) -> None:
        """Count a group that is made in this pass."""
        self._let_in[index] = self._need(revision)

    def expect(self, index: int, revision: Revision) -> None:
        """Count a group that is down and will want its nodes back, where others ask for spare ones."""
        self._expected[index] = self._need(revision)

    def has_spare(self, revision: Revision) -> bool:
        """Whether one more whole group is known to fit beside everything that stands or waits."""
        return self._fits_beside_all(revision, ())

    def could_move(self, revision: Revision, pods: Iterable[PodView]) -> bool:
        """Whether a standing group is known to find room elsewhere; cordoned nodes are no room."""
        return self._fits_beside_all(revision, pods)

    def shortfall(self, index: int, revision: Revision, pods: Sequence[PodView]) -> str:
        """How many GPUs of what a group lacks whose pods wait; empty unless that is known to be the cause."""
        capacity = self._observed.capacity
        if capacity is None:
            return ""
        rest = self._rest(revision, pods)
        ahead = [d for d in self._rivals(capacity, rest, but=index) if d.admitted and self._is_before(d)]
        room = self._room_behind(capacity, ahead, rest)
        return "" if room.fits(rest) else f"{_missing(room, rest, revision.plan.gpu)}"

    def beneficiary(self, index: int, revision: Revision, pods: Sequence[PodView]) -> str:
        """Who could run on the nodes that a half-made group holds in vain, in words; empty: keep them."""
        capacity = self._observed.capacity
        if capacity is None or self.release_in_s(index, revision, pods) != 0.0:
            return ""
        rest = self._rest(revision, pods)
        going = _held(pod for pod in self._observed.pods if pod.deleting and pod.group != index)
        room = _room(capacity).more(going)
        if room.fits(rest):
            return ""
        given_back = room.more(_held(pods))
        rivals = self._rivals(capacity, self._need(revision), but=index)
        return next(
            (
                self._name(d)
                for d in rivals
                if self._priority_of(d.need.scheduling) >= self._priority and given_back.fits(d.need)
            ),
            "",
        )

    def release_in_s(self, index: int, revision: Revision, pods: Sequence[PodView]) -> float | None:
        """Seconds until a half-made group may give its nodes back; None if it is whole or has none.

        A gang scheduler makes no halves: what looks like one is being placed.
        """
        waiting = [pod.created_at for pod in pods if not pod.node]
        if self._observed.capacity is None or not waiting or len(waiting) == len(pods):
            return None
        if revision.gang is not None:
            return None
        patience = timedelta(seconds=RELEASE_S * (1 + spread(f"{self._observed.key}/{index}") / 2))
        return max(0.0, (min(waiting) + patience - self._now).total_seconds())

    def _need(self, revision: Revision) -> Need:
        return Need(
            pods=revision.members,
            pod_gpus=revision.plan.gpus_per_node,
            pool=revision.pool,
            scheduling=self._scheduling,
        )

    def _rest(self, revision: Revision, pods: Sequence[PodView]) -> Need:
        """What the group lacks of its nodes."""
        placed = frozenset(pod.node for pod in pods if pod.node)
        return replace(self._need(revision), pods=revision.members - len(placed), but_on=placed)

    def _fits_beside_all(self, revision: Revision, given_back: Iterable[PodView]) -> bool:
        capacity = self._observed.capacity
        if capacity is None:
            return False
        need = self._need(revision)
        room = self._room_behind(capacity, self._rivals(capacity, need, but=None), need)
        for index, coming in self._expected.items():
            if index not in self._let_in:
                room = room.less(coming)
        return room.more(_held(given_back)).fits(need)

    def _rivals(self, capacity: CapacityView, need: Need, *, but: int | None) -> list[Demand]:
        """Demands of others, and of other groups of ours, for nodes that the need could use as well."""
        mine = need.reach(capacity.ground)
        return [
            demand
            for demand in capacity.demands
            if not (demand.key == self._observed.key and (demand.group == but or not demand.admitted))
            and _overlap(mine, demand.need.reach(capacity.ground), need, demand.need)
        ]

    def _priority_of(self, scheduling: SchedulingSpec) -> int:
        return self._observed.priorities.of(scheduling.priority_class_name)

    def _comes_first(self, demand: Demand) -> bool:
        """Whether it has its turn before a group of this resource that is not made yet."""
        theirs = self._priority_of(demand.need.scheduling)
        return theirs > self._priority or (
            theirs == self._priority and (demand.admitted or self._is_before(demand))
        )

    def _is_before(self, demand: Demand) -> bool:
        """Whether it comes before this resource in the queue."""
        resource = self._observed.resource
        if resource is None or demand.key == resource.key:
            return resource is not None
        mine = (-self._priority, resource.created_at, resource.key)
        return (-self._priority_of(demand.need.scheduling), demand.created_at, demand.key) < mine

    def _turn(self, demand: Demand) -> tuple[int, bool, datetime, Key, int]:
        """Who is served first compares as least."""
        priority = self._priority_of(demand.need.scheduling)
        return (-priority, not demand.admitted, demand.created_at, demand.key, demand.group)

    def _room_behind(self, capacity: CapacityView, demands: Sequence[Demand], need: Need) -> Room:
        """The room that is left when these demands, and groups let in before, are met as far as they can be.

        A group that is held back and does not fit takes nothing: smaller ones may pass it, but those of a
        lower priority. Pods that have found no node for long evidently cannot use what is free, and what is
        kept for the next groups of their resource would lie idle for as long as they wait.
        """
        room = _room(capacity)
        ours = tuple(self._let_in.values())
        if _is_plenty(room, [*(demand.need for demand in demands), *ours, need]):
            return room
        in_vain = {demand.key for demand in demands if self._waits_in_vain(demand)}
        for demand in sorted(demands, key=self._turn):
            theirs = demand.need
            reserves = self._priority_of(theirs.scheduling) > self._priority and demand.key not in in_vain
            held_for = not demand.admitted and (reserves or room.fits(theirs))
            if (demand.admitted and not self._waits_in_vain(demand)) or held_for:
                room = room.less(theirs)
        for own in ours:
            room = room.less(own)
        return room

    def _waits_in_vain(self, demand: Demand) -> bool:
        """Whether pods that were made have found no node for long."""
        return demand.since is not None and self._now - demand.since > timedelta(seconds=RELEASE_S)

    def _name(self, demand: Demand) -> str:
        if demand.key == self._observed.key:
            return f"group {demand.group}"
        higher = self._priority_of(demand.need.scheduling) > self._priority
        return f"{demand.key}, of a higher priority," if higher else str(demand.key)


def _room(capacity: CapacityView) -> Room:
    return Room.of(capacity.ground, capacity.taken)


def _is_plenty(room: Room, needs: Sequence[Need]) -> bool:
    """Whether every pod of all would find a node to itself: the common case, told without placing any."""
    if any(need.scheduling.topology_key for need in needs):
        return False
    # Most ask the same and have one set in common; hundreds at once would else be intersected one by one.
    common = frozenset.intersection(*{need.reach(room.ground) for need in needs})
    most = max(need.pod_gpus for need in needs)
    wanted = sum(need.pods for need in needs)
    whole = (name for name, free in room.free.items() if free >= most and name in common)
    return sum(1 for _ in islice(whole, wanted)) == wanted


def _overlap(mine: frozenset[str], theirs: frozenset[str], need: Need, other: Need) -> bool:
    """Whether two want the same nodes; of nodes that do not exist yet, those with the same GPU."""
    if mine and theirs:
        return mine is theirs or not mine.isdisjoint(theirs)
    return other.pool.name in {need.pool.name, ""}


def _held(pods: Iterable[PodView]) -> Counter[str]:
    """GPUs that pods hold, by node."""
    held: Counter[str] = Counter()
    for pod in pods:
        if pod.node:
            held[pod.node] += pod.gpus
    return held


def _missing(room: Room, need: Need, gpu: str) -> str:
    there = min(room.fitting(need), need.pods)
    nodes = "1 node" if need.pods == 1 else f"{need.pods} nodes"
    gpus = "1 free GPU" if need.pod_gpus == 1 else f"{need.pod_gpus} free GPUs"
    lacking = (need.pods - there) * need.pod_gpus
    missing = "1 GPU is missing" if lacking == 1 else f"{lacking} GPUs are missing"
    each = "" if need.pods == 1 else " each"
    return f"{nodes} with {gpus} ({gpu}){each}; {there} found, {missing}"
