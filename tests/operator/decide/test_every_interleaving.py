"""Every interleaving of a small world: the rules hold in each state, and each state leads to rest."""

from collections import deque
from collections.abc import Iterator

import pytest

from shardwright_operator.api.constants import Role
from small_world import (
    KEY,
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


def successors(state: State, wishes: tuple[Wish, ...]) -> Iterator[tuple[str, State]]:
    yield from passes(state)
    yield from watches(state)
    yield from controllers(state)
    yield from kubelets(state)
    yield from faults(state)
    yield from edits(state, wishes)


def settled(state: State) -> State:
    """Where the state comes to rest when everybody does his work and nothing more goes wrong."""
    for _ in range(MOST_STEPS):
        state = state.synced()
        step = _fair_step(state)
        if step is None:
            return state
        check(step)
        state = step
    raise ViolationError(f"never comes to rest: {state}")


def _fair_step(state: State) -> State | None:
    """The operator first, in whole passes; then the controllers, then the kubelets."""
    whole = [after for _, after in passes(state)][-1:]
    moves = (*whole, *(after for move in (controllers, kubelets) for _, after in move(state)))
    return next(iter(moves), None)


def is_good(state: State) -> bool:
    """All wanted groups serve, on the target revision unless that is held back, and there are no others."""
    _, writes = decision_on(state.wish, state.revisions, state.sets, state.pods)
    leaders = [found for (_, role), found in state.sets if role is Role.LEADER]
    all_serve = all(serves(state, group) for group in groups(state))
    one_kind = state.wish.paused or len({pod.made_from for pod in state.pods}) <= 1
    return not writes and len(leaders) == state.wish.replicas and all_serve and one_kind


def explore(start: State, wishes: tuple[Wish, ...]) -> int:
    """Visit every state that can be reached; returns their number."""
    came: dict[State, tuple[State, str] | None] = {start: None}
    good: set[State] = set()
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        try:
            _must_come_to_rest(state, good)
            for label, after in successors(state, wishes):
                found = canonical(after)
                if found not in came:
                    came[found] = (state, label)
                    check(found)
                    waiting.append(found)
        except ViolationError as violation:
            raise ViolationError(f"{violation}\n{_way_to(state, came)}") from None
        assert len(came) <= MOST_STATES, "the world is not small any more"
    return len(came)


def _must_come_to_rest(state: State, good: set[State]) -> None:
    """Follow the fair way from a state to one that is known to end well."""
    seen = []
    for _ in range(MOST_STEPS):
        state = canonical(state.synced())
        if state in good:
            break
        seen.append(state)
        step = _fair_step(state)
        if step is None:
            if not is_good(state):
                raise ViolationError(f"comes to rest where it should not: {state}")
            break
        check(step)
        state = step
    else:
        raise ViolationError("never comes to rest")
    good.update(seen)


def _way_to(state: State, came: dict[State, tuple[State, str] | None]) -> str:
    steps = []
    at: State | None = state
    while at is not None and (origin := came[at]) is not None:
        at, label = origin
        steps.append(label)
    return "\n".join(f"{number:3}. {label}" for number, label in enumerate(reversed(steps), start=1))


@pytest.mark.parametrize(
    ("replicas", "fault_budget", "edit_budget", "wishes"),
    [
        pytest.param(1, 1, 0, (), id="one group, one fault"),
        pytest.param(1, 0, 1, (Wish(1, 1),), id="one group, an edit"),
        pytest.param(2, 0, 1, (Wish(1, 2),), id="two groups, an edit"),
        pytest.param(2, 0, 1, (Wish(0, 1),), id="two groups, scaled in"),
        pytest.param(1, 1, 1, (Wish(1, 1),), id="one group, one fault, an edit", marks=pytest.mark.extended),
    ],
)
def test_every_interleaving(
    replicas: int, fault_budget: int, edit_budget: int, wishes: tuple[Wish, ...]
) -> None:
    start = canonical(settled(State(wish=Wish(0, replicas))))
    assert is_good(start), start
    count = explore(start._replace(faults=fault_budget, edits=edit_budget), wishes)
    print(f"{KEY}: {count} states")
