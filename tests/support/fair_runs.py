"""Whether every fair run over a graph of states ends, and where.

A run is fair when nobody who could act all the time never does. Over finitely many states it either ends, in
one where nobody has anything to do, or stays for ever in a set of states of which each leads to each other.
Such a set is left by a fair run unless everybody who can act in all of its states does so within it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Edge(NamedTuple):
    """A move to another state."""

    target: int
    duty: str
    """Who makes it sooner or later; empty for what need not happen."""


Graph = Sequence[Sequence[Edge]]
"""The moves out of each state, by its number."""


def ends(graph: Graph) -> Iterator[int]:
    """States in which nobody has anything to do."""
    return (state for state, edges in enumerate(graph) if not any(edge.duty for edge in edges))


def endless(graph: Graph) -> list[int] | None:
    """States that some fair run never leaves, if there are any."""
    for component in _components(graph):
        inside = set(component)
        taken = {e.duty for state in component for e in graph[state] if e.target in inside}
        if not taken:
            continue
        waiting = set.intersection(*({e.duty for e in graph[state]} for state in component))
        if waiting - {""} <= taken:
            return component
    return None


def _components(graph: Graph) -> Iterator[list[int]]:
    """Sets of states of which each leads to each other (Tarjan 1972), without recursion."""
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    for root in range(len(graph)):
        if root in order:
            continue
        work = [(root, iter(graph[root]))]
        order[root] = lowest[root] = len(order)
        path.append(root)
        on_path.add(root)
        while work:
            state, edges = work[-1]
            for edge in edges:
                if edge.target not in order:
                    order[edge.target] = lowest[edge.target] = len(order)
                    path.append(edge.target)
                    on_path.add(edge.target)
                    work.append((edge.target, iter(graph[edge.target])))
                    break
                if edge.target in on_path:
                    lowest[state] = min(lowest[state], order[edge.target])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[state])
                if lowest[state] == order[state]:
                    found = []
                    while not found or found[-1] != state:
                        found.append(path.pop())
                    on_path.difference_update(found)
                    yield found
