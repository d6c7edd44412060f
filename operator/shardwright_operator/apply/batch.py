"""Requests of one pass that are made together, within bounds."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from shardwright_operator.apply.retry import RetryLaterError
from shardwright_operator.cluster import ClusterError

AT_ONCE = 8
"""Requests of one resource that are under way together. The connections are shared: one with 999 groups asked
for 3000 children at once, which took 40 s, and what others had to write meanwhile timed out."""


async def all_of(requests: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run all to their end, then raise the gravest failure: a half-known stage is worse than a late error."""
    room = asyncio.Semaphore(AT_ONCE)

    async def in_turn(request: Callable[[], Awaitable[None]]) -> None:
        async with room:
            await request()

    results = await asyncio.gather(*map(in_turn, requests), return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    if failures:
        raise max(failures, key=_gravity)


def _gravity(failure: BaseException) -> int:
    if isinstance(failure, RetryLaterError):
        return 0
    return 1 if isinstance(failure, ClusterError) else 2
