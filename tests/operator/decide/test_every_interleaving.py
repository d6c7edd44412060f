"""Every interleaving of a small world: the rules hold in each state, and every fair run comes to rest."""

from collections.abc import Iterator

import pytest

from fair_runs import Edge, endless, ends
from shardwright_operator.api.constants import Role
from small_world import (
    KEY,
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
    watches,
)

MOST_STATES = 400_000
MOST_STEPS = 400


def moves(state: State) -> Iterator[Move]:
    """What everybody does who does his work."""
    yield from passes(state)
    yield from watches(state)
    yield from controllers(state)
    yield from kubelets(state)


def hazards(state: State, wishes: tuple[Wish, ...]) -> Iterator[Move]:
    """What nobody has to wait for."""
    yield from faults(state)
    yield from edits(state, wishes)


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

    def __init__(self, start: State, wishes: tuple[Wish, ...], *, prompt: bool) -> None:
        """With ``prompt`` the operator hears of everything at once; it may still die at any write."""
        self._wishes = wishes
        self._prompt = prompt
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
                for move in hazards(state, self._wishes):
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
        state = canonical(move.after.synced() if self._prompt else move.after)
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


EDITED, PAUSED = Wish(1, 2), Wish(1, 2, paused=True)
ALONE, ALONE_PAUSED = Wish(1, 1), Wish(1, 1, paused=True)


@pytest.mark.parametrize(
    ("replicas", "fault_budget", "edit_budget", "wishes", "prompt"),
    [
        pytest.param(1, 1, 0, (), False, id="one group, a fault"),
        pytest.param(2, 1, 0, (), False, id="two groups, a fault"),
        pytest.param(1, 0, 2, (ALONE, ALONE_PAUSED), False, id="one group, an edit, a pause"),
        pytest.param(2, 0, 2, (EDITED, PAUSED), False, id="two groups, an edit, a pause"),
        pytest.param(2, 0, 1, (Wish(0, 1),), False, id="two groups, scaled in"),
        pytest.param(1, 0, 1, (Wish(0, 2),), False, id="one group, scaled out"),
        pytest.param(2, 1, 1, (EDITED,), True, id="two groups, a fault, an edit, told at once"),
        pytest.param(2, 1, 1, (PAUSED,), True, id="two groups, a fault, a pause, told at once"),
        pytest.param(1, 1, 1, (ALONE,), False, id="one group, a fault, an edit", marks=pytest.mark.extended),
        pytest.param(
            1, 1, 1, (ALONE_PAUSED,), False, id="one group, a fault, a pause", marks=pytest.mark.extended
        ),
    ],
)
def test_every_interleaving(
    replicas: int, fault_budget: int, edit_budget: int, wishes: tuple[Wish, ...], *, prompt: bool
) -> None:
    start = canonical(settled(State(wish=Wish(0, replicas))))
    assert is_good(start), start
    exploration = Exploration(start._replace(faults=fault_budget, edits=edit_budget), wishes, prompt=prompt)
    exploration.run()
    print(f"{KEY}: {len(exploration.states)} states")
