"""How the process ends: which of its tasks has ended first, and the exit code that follows."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from shardwright_operator.lease import LeaseLostError
from shardwright_operator.watching import UnservedError

EXIT_OK = 0
EXIT_FAULT = 1
EXIT_BAD_INPUT = 2

GANGS = "gang schedulers"
"""Name of the task that ends when their APIs come or go."""

log = logging.getLogger(__name__)


def verdict(ends: set[asyncio.Task[Any]]) -> int:
    """The exit code, by what has ended; raises UnservedError when a kind that was watched has gone."""
    for task in ends:
        if not task.done() or task.get_name() == "stop":
            continue
        failure = task.exception()
        if isinstance(failure, UnservedError):
            raise failure
        if isinstance(failure, LeaseLostError):
            log.error("%s", failure)
        elif failure is None and task.get_name() == GANGS:
            log.info("other gang schedulers can be used than at the start: starting anew")
            return EXIT_OK
        else:
            log.error("%s ended: %r", task.get_name(), failure)
        return EXIT_FAULT
    if any(task.done() for task in ends):
        log.info("stopping")
        return EXIT_OK
    log.error("a worker ended")
    return EXIT_FAULT


async def unless(stop: asyncio.Event, coroutine: Coroutine[Any, Any, None]) -> bool:
    """Run to the end and return True; or return False as soon as ``stop`` is set."""
    task = asyncio.create_task(coroutine)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        for each in (task, stopping):
            each.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)
