"""Every interleaving of a small world: the rules hold in each state, and every fair run comes to rest."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from fair_runs import Edge, endless, ends
from shardwright_operator.api.constants import Role
from small_world import (
    KEY,
    SETS,
    Move,
    State,
    ViolationError,
    Wish,
    canonical,
    check,
    controllers,
    decision_on,
    edits,
    faults,
    groups,
    kubelets,
    passes,
    serves,
    silences,
    watches,
)

MOST_STATES = 400_000
LARGE = pytest.mark.extended
MOST_STEPS = 400


def moves(state: State) -> Iterator[Move]:
    """What everybody does who does his work."""
    yield from passes(state)
    yield from watches(state)
    yield from controllers(state)
    yield from kubelets(state)


def hazards(state: State, world: "World") -> Iterator[Move]:
    """What nobody has to wait for."""
    yield from (move for move in faults(state) if world.fault in move.label)
    yield from edits(state, world.wishes)
    yield from (move for move in silences(state) if world.silent in move.label)


def settled(state: State) -> State:
    """Where the state comes to rest when everybody does his work and nothing goes wrong."""
    for _ in range(MOST_STEPS):
        move = next((move for move in moves(state.synced()) if move.duty), None)
        if move is None:
            return state.synced()
        check(move.after)
        state = move.after
    raise ViolationError(f"never comes to rest: {state}")


def is_good(state: State) -> bool:
    """All wanted groups serve, on the target revision unless that is held back, and there are no others."""
    _, writes = decision_on(state.wish, state.revisions, state.sets, state.pods)
    leaders = [found for (_, role), found in state.sets if role is Role.LEADER]
    all_serve = all(serves(state, group) for group in groups(state))
    one_kind = state.wish.paused or len({pod.made_from for pod in state.pods}) <= 1
    return not writes and len(leaders) == state.wish.replicas and all_serve and one_kind


class Exploration:
    """Every state that can be reached from one, by each order of moves."""

    def __init__(self, start: State, world: "World") -> None:
        self._world = world
        self._numbers = {start: 0}
        self.states = [start]
        self._came: list[tuple[int, str] | None] = [None]
        self._graph: list[list[Edge]] = []

    def run(self) -> None:
        """Visit all states.

        Raises:
            ViolationError: a rule is broken, or a fair run does not end well; with the way there.
        """
        while len(self._graph) < len(self.states):
            number = len(self._graph)
            state = self.states[number]
            self._graph.append([])
            try:
                for move in moves(state):
                    self._graph[number].append(Edge(self._reached(number, move), move.duty))
                for move in hazards(state, self._world):
                    self._reached(number, move)
            except ViolationError as violation:
                raise self._told(str(violation), number) from None
        for number in ends(self._graph):
            if not is_good(self.states[number]):
                raise self._told(f"comes to rest where it should not: {self.states[number]}", number)
        if (loop := endless(self._graph)) is not None:
            raise self._told(
                f"{len(loop)} states are never left, such as {self.states[min(loop)]}", min(loop)
            )

    def _reached(self, origin: int, move: Move) -> int:
        """Number of the state that a move leads to; a new one is checked."""
        state = canonical(move.after.told() if self._world.prompt else move.after)
        number = self._numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            assert number < MOST_STATES, "the world is not small any more"
            self.states.append(state)
            self._came.append((origin, move.label))
            check(state)
        return number

    def _told(self, what: str, number: int) -> ViolationError:
        """The violation with the way to the state where it is seen."""
        labels: list[str] = []
        while (came := self._came[number]) is not None:
            number, label = came
            labels.append(label)
        way = [f"{step:3}. {label}" for step, label in enumerate(reversed(labels), start=1)]
        return ViolationError("\n".join((what, *way)))


EDIT, PAUSE = Wish(1, 1), Wish(1, 1, paused=True)
EDIT_2, PAUSE_2 = Wish(1, 2), Wish(1, 2, paused=True)
LOST, UNLED = "rank 1 of group 1 vanishes", "llama-0-leader is deleted"


class World(NamedTuple):
    """Groups of two ranks, what may befall them, and which edits the user may make."""

    groups: int
    faults: int = 0
    edits: int = 0
    wishes: tuple[Wish, ...] = ()
    prompt: bool = False
    """Whether the operator hears of everything at once; it may still die at any write."""
    silences: int = 0
    """How often a watch may fall silent, which is then the only one that is late."""
    fault: str = ""
    """In a world that would be too large: words of the only faults that happen."""
    silent: str = ""
    """And of the only watch that falls silent."""


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(World(1, faults=1), id="a group, a fault"),
        pytest.param(World(2, faults=1), id="two groups, a fault"),
        pytest.param(World(1, edits=2, wishes=(EDIT, PAUSE)), id="a group, an edit, a pause"),
        pytest.param(World(2, edits=2, wishes=(EDIT_2, PAUSE_2)), id="two groups, an edit, a pause"),
        pytest.param(World(2, edits=1, wishes=(Wish(0, 1),)), id="two groups, scaled in"),
        pytest.param(World(1, edits=1, wishes=(Wish(0, 2),)), id="a group, scaled out"),
        pytest.param(World(1, 1, 1, (EDIT,), prompt=True), id="a group, a fault, an edit, told at once"),
        pytest.param(World(1, 1, 1, (PAUSE,), prompt=True), id="a group, a fault, a pause, told at once"),
        pytest.param(
            World(2, 1, 1, (EDIT_2,), prompt=True, fault=LOST),
            id="two groups, a pod lost, an edit, told at once",
        ),
        pytest.param(
            World(2, 1, 1, (EDIT_2,), prompt=True, fault=UNLED),
            id="two groups, a leader set deleted, an edit, told at once",
        ),
        pytest.param(World(1, 1, 1, (EDIT,)), id="a group, a fault, an edit", marks=LARGE),
        pytest.param(World(1, 1, 1, (PAUSE,)), id="a group, a fault, a pause", marks=LARGE),
        pytest.param(
            World(2, 1, 1, (EDIT_2,), prompt=True),
            id="two groups, a fault, an edit, told at once",
            marks=LARGE,
        ),
        pytest.param(
            World(2, 1, 1, (PAUSE_2,), prompt=True),
            id="two groups, a fault, a pause, told at once",
            marks=LARGE,
        ),
        pytest.param(
            World(1, 1, 1, (Wish(0, 2),), prompt=True),
            id="a group, a fault, scaled out, told at once",
            marks=LARGE,
        ),
        pytest.param(
            World(2, 1, 1, (Wish(0, 1),), prompt=True),
            id="two groups, a fault, scaled in, told at once",
            marks=LARGE,
        ),
        pytest.param(
            World(2, 1, 1, (EDIT_2,), prompt=True, silences=1, fault=LOST, silent=SETS),
            id="two groups, a pod lost, an edit, the watch of sets silent",
            marks=LARGE,
        ),
        pytest.param(
            World(2, 1, 1, (EDIT_2,), prompt=True, silences=1, fault=UNLED),
            id="two groups, a leader set deleted, an edit, a watch silent",
            marks=LARGE,
        ),
    ],
)
def test_every_interleaving(world: World) -> None:
    start = canonical(settled(State(wish=Wish(0, world.groups))))
    assert is_good(start), start
    start = start._replace(faults=world.faults, edits=world.edits, silences=world.silences)
    exploration = Exploration(start, world)
    exploration.run()
    print(f"{KEY}: {len(exploration.states)} states")
