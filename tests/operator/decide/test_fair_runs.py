"""The judge of endless runs, on graphs small enough to see by eye."""

import pytest

from fair_runs import Edge, endless, ends


@pytest.mark.parametrize(
    ("graph", "last", "never_left"),
    [
        pytest.param([[Edge(1, "walks")], []], [1], None, id="a walk to its end"),
        pytest.param([[Edge(0, "walks")]], [], {0}, id="somebody walks on the spot"),
        pytest.param([[Edge(1, "a")], [Edge(0, "a")]], [], {0, 1}, id="to and fro"),
        pytest.param(
            [[Edge(1, "a"), Edge(2, "b")], [Edge(0, "a"), Edge(2, "b")], []],
            [2],
            None,
            id="to and fro, until b has his turn",
        ),
        pytest.param(
            [[Edge(1, "a"), Edge(2, "b")], [Edge(0, "a")], []],
            [2],
            {0, 1},
            id="to and fro, and b may do nothing every other time",
        ),
        pytest.param(
            [[Edge(0, ""), Edge(1, "b")], []], [1], None, id="a cached view may be used again, not for ever"
        ),
        pytest.param([[Edge(0, "")], []], [0, 1], {0}, id="only what need not happen is left"),
        pytest.param(
            [[Edge(1, "a")], [Edge(2, "a"), Edge(3, "a")], [Edge(1, "a")], []],
            [3],
            {1, 2},
            id="an end that can always be missed",
        ),
    ],
)
def test_where_fair_runs_end(graph: list[list[Edge]], last: list[int], never_left: set[int] | None) -> None:
    found = endless(graph)
    assert (list(ends(graph)), None if found is None else set(found)) == (last, never_left)
