"""Waiting for a cluster to reach a state, with a failure that says what was seen instead."""

import time
from collections.abc import Callable
from typing import TypeVar

from control_plane.client import ApiError, Client

T = TypeVar("T")

PATIENCE_S = 60.0
"""Most of what is awaited takes a second or two; the rest is for a machine that is busy with other things."""


def wait_for(
    predicate: Callable[[], T | None],
    what: str,
    *,
    timeout_s: float = PATIENCE_S,
    interval_s: float = 0.1,
    detail: Callable[[], object] | None = None,
) -> T:
    """Return the first truthy value of ``predicate``.

    An ApiError or AssertionError of the predicate counts as "not yet". After ``timeout_s`` an AssertionError
    names ``what`` was awaited, the last value or error, and what ``detail`` gives (say, the objects' status).
    """
    started = time.monotonic()
    seen: object = None
    while True:
        try:
            value = predicate()
        except (ApiError, AssertionError) as error:
            seen = error
        else:
            if value:
                return value
            seen = value
        if time.monotonic() - started > timeout_s:
            break
        time.sleep(interval_s)
    text = f"not within {timeout_s:g} s: {what}; last seen: {seen!r}"
    if detail is not None:
        text += f"\n{detail()}"
    raise AssertionError(text)


def wait_served(client: Client, resource: str) -> None:
    """Wait until the API server serves a resource whose definition was just applied.

    ``kubectl wait`` fails at once, "accessor error: <nil> is of the type <nil>", while a new one has no
    conditions yet.
    """

    def served() -> bool:
        try:
            client.list(resource)
        except LookupError:
            return False
        return True

    wait_for(served, f"the API server serves {resource}")
