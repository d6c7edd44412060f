"""What stood at each moment of a trace, rebuilt one sight after another."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from sights import LEADER, WORKER, Child, Deployment, GroupKey, GroupSet, Node, Pod, Sight, Thing

K = TypeVar("K")
T = TypeVar("T", Pod, GroupSet, Deployment, Node, Child)


@dataclass(slots=True)
class World:
    """Everything that stands, by UID; what is looked for by name has an index of its own."""

    pods: dict[str, Pod] = field(default_factory=dict)
    sets: dict[tuple[GroupKey, str], GroupSet] = field(default_factory=dict)
    """By group and role; of two under one name the newer."""
    deployments: dict[str, Deployment] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    children: dict[str, Child] = field(default_factory=dict)
    by_group: defaultdict[GroupKey, dict[str, Pod]] = field(default_factory=lambda: defaultdict(dict))
    born: dict[str, float] = field(default_factory=dict)
    """When each object was first seen, by UID."""
    ended: dict[str, float] = field(default_factory=dict)
    """When each object that is gone went, by UID."""

    def take(self, sight: Sight) -> Thing | None:
        """Take in one sight; returns what stood in its place before, if it was the same object."""
        thing, gone = sight.thing, sight.gone
        self.born.setdefault(thing.uid, sight.at)
        if gone:
            self.ended[thing.uid] = sight.at
        match thing:
            case Pod():
                if gone:
                    self.by_group[thing.group].pop(thing.uid, None)
                else:
                    self.by_group[thing.group][thing.uid] = thing
                return _put(self.pods, thing.uid, thing, gone=gone)
            case GroupSet():
                return _put(self.sets, (thing.group, thing.role), thing, gone=gone)
            case Deployment():
                return _put(self.deployments, thing.name, thing, gone=gone)
            case Node():
                return _put(self.nodes, thing.name, thing, gone=gone)
            case Child():
                return _put(self.children, thing.uid, thing, gone=gone)

    def leader(self, group: GroupKey) -> GroupSet | None:
        return self.sets.get((group, LEADER))

    def worker(self, group: GroupKey) -> GroupSet | None:
        return self.sets.get((group, WORKER))

    def is_up(self, group: GroupKey) -> bool:
        """Whether the group's leader set wants its pod."""
        leader = self.leader(group)
        return leader is not None and leader.wanted > 0 and not leader.going

    def groups_up(self, resource: str) -> list[GroupKey]:
        """Groups of a resource that are up."""
        groups = sorted(group for group, role in self.sets if role == LEADER and group.resource == resource)
        return [group for group in groups if self.is_up(group)]

    def members(self, group: GroupKey) -> int:
        """Pods that the group's sets want together."""
        sets = (self.leader(group), self.worker(group))
        return sum(each.wanted for each in sets if each is not None)

    def serves(self, group: GroupKey) -> bool:
        """Whether all members of a group that is up are there, ready, and stay."""
        pods = self.by_group[group].values()
        whole = len(pods) == self.members(group)
        return self.is_up(group) and whole and all(pod.ready and not pod.going for pod in pods)

    def ready_groups(self, resource: str) -> int:
        return sum(self.serves(group) for group in self.groups_up(resource))


class Step(NamedTuple):
    """One sight, what stood there before, and the world after it."""

    sight: Sight
    before: Thing | None
    world: World

    @property
    def raised(self) -> GroupSet | None:
        """The set that wants pods from now on, and wanted none or was not there."""
        thing, before = self.sight.thing, self.before
        if not isinstance(thing, GroupSet) or self.sight.gone or thing.wanted == 0:
            return None
        was_up = isinstance(before, GroupSet) and before.wanted > 0
        return None if was_up else thing

    @property
    def dropped(self) -> GroupSet | None:
        """The set that wants no pods from now on, and did."""
        thing, before = self.sight.thing, self.before
        if not isinstance(thing, GroupSet) or not isinstance(before, GroupSet):
            return None
        return thing if before.wanted > 0 and thing.wanted == 0 and not self.sight.gone else None


def replay(sights: Iterable[Sight]) -> Iterator[Step]:
    """Every step of a trace that is in order; the world is one and the same, changed in place."""
    world = World()
    for sight in sights:
        before = world.take(sight)
        yield Step(sight, before, world)


def world_after(sights: Iterable[Sight]) -> World:
    """What stands at the end of a trace."""
    world = World()
    for sight in sights:
        world.take(sight)
    return world


def _put(things: dict[K, T], key: K, thing: T, *, gone: bool) -> T | None:
    before = things.get(key)
    same = before if before is not None and before.uid == thing.uid else None
    if not gone:
        things[key] = thing
    elif same is not None:
        del things[key]
    return same
