"""How many groups, and which of them go: counts and flags in, indices out. Knows neither pods nor GPUs.

There are no steps of a rollout to remember. Each pass asks anew which groups there are too many of, which may
be replaced where they stand, and how many are lacking; a rollout is what these answers do one after another.

Two floors hold throughout. As many groups serve as ``wanted - max_unavailable`` says, and of several wanted
groups one always does: a revision that cannot start must not take the last good group with it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from shardwright_operator.api.lifecycle_spec import DEFAULT_MAX_UNAVAILABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A group as far as counting goes."""

    index: int
    age: tuple[datetime, int]
    """Older groups compare as less."""
    serves: bool
    is_good: bool
    """Whether it serves, or did and its engine still runs: a moment's unreadiness is no reason to drop it."""
    is_up: bool
    """Whether its sets want pods. A group that is down comes up with the right revision by itself."""
    outdated: bool
    displaced: bool = False
    """Whether it has to leave a node, and there is room for it elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the spec allows."""

    wanted: int
    max_unavailable: int | None
    max_surge: int
    paused: bool = False
    stalled: bool = False
    """Whether the target does not come up where it was tried: nothing more is taken down for it."""

    @property
    def fewest_in_place(self) -> int:
        """Groups that have to serve while others are replaced where they stand."""
        unavailable = DEFAULT_MAX_UNAVAILABLE if self.max_unavailable is None else self.max_unavailable
        return max(self.wanted - unavailable, min(1, self.wanted - 1))

    @property
    def fewest_with_surge(self) -> int:
        """Groups that have to serve while new ones take over: all, unless the user allows less."""
        return max(self.wanted - (self.max_unavailable or 0), min(1, self.wanted))


class Lineup:
    """The groups that stay, and the questions about them."""

    def __init__(self, places: Iterable[Place], limits: Limits) -> None:
        self.places = list(places)
        self.limits = limits

    @property
    def rolling(self) -> bool:
        """Whether groups are to be replaced by ones of another revision."""
        return not self.limits.paused and any(place.outdated for place in self.places)

    def surplus(self) -> list[int]:
        """Groups that go for good. Those are left out of all later answers."""
        gone = [*self._too_many(), *self._superseded()]
        return [place.index for place in gone]

    def replaced_in_place(self, *, surging: bool) -> Iterator[int]:
        """Groups that go down now to come up anew, those that serve nobody first.

        While a rollout can go on by surging, groups that still do some good are left to that.
        """
        for place in [*self._due(good=False), *self._due(good=True)]:
            for_revision = place.outdated and not self._held
            if place.is_good and not place.displaced and surging:
                continue
            if (for_revision or place.displaced) and self._can_spare(place, self.limits.fewest_in_place):
                self._take_down(place)
                yield place.index

    def lacking(self) -> int:
        """Groups to be made so that there are as many as wanted."""
        return max(0, self.limits.wanted - len(self.places))

    def surge(self) -> int:
        """Groups that may be made beyond that, for a rollout to go on without loss."""
        if not self.rolling or self._held:
            return 0
        outdated = sum(place.outdated for place in self.places)
        beyond = max(0, len(self.places) - self.limits.wanted)
        return max(0, min(self.limits.max_surge, outdated) - beyond)

    @property
    def _held(self) -> bool:
        return self.limits.paused or self.limits.stalled

    def _too_many(self) -> Iterator[Place]:
        """Groups beyond all that is allowed: broken ones first, then outdated, then the newest."""
        allowed = self.limits.wanted + (self.limits.max_surge if self.rolling else 0)
        newest_first = sorted(self.places, key=lambda place: place.age, reverse=True)
        for place in sorted(newest_first, key=lambda p: (p.serves, p.is_good, not p.outdated)):
            if len(self.places) <= allowed:
                return
            self.places.remove(place)
            yield place

    def _superseded(self) -> Iterator[Place]:
        """Outdated groups whose place a surge group has taken."""
        if not self.rolling or self._held:
            return
        newest_first = sorted(self.places, key=lambda place: place.age, reverse=True)
        for place in sorted(newest_first, key=lambda p: (p.serves, p.is_good)):
            if len(self.places) <= self.limits.wanted:
                return
            if place.outdated and self._can_spare(place, self.limits.fewest_with_surge):
                self.places.remove(place)
                yield place

    def _due(self, *, good: bool) -> list[Place]:
        """Groups that may be replaced: those that do not serve before those that do, then by index."""
        due = [p for p in self.places if p.is_up and p.is_good is good and (p.outdated or p.displaced)]
        return sorted(due, key=lambda place: (place.serves, not place.displaced, place.index))

    def _can_spare(self, place: Place, fewest: int) -> bool:
        """Whether the others are enough without it."""
        others = sum(other.serves for other in self.places if other is not place)
        if place.serves:
            return others >= fewest
        return not place.is_good or others >= min(fewest, 1)

    def _take_down(self, place: Place) -> None:
        self.places.remove(place)
        self.places.append(
            Place(
                index=place.index,
                age=place.age,
                serves=False,
                is_good=False,
                is_up=False,
                outdated=place.outdated,
            )
        )
