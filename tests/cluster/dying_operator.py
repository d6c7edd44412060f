"""The operator's process, made to die by SIGKILL after its n-th write: ``dying_operator.py N [arguments]``.

A kill from outside cannot be aimed between two writes. The product has no switch for it, so its client is
wrapped here, in the very process that dies. The Lease and Events do not count as writes. Writes that the
operator sends together go one after the other, so that exactly N of them have taken place.

With ``--on-signal`` behind the number it lives on until SIGUSR1 comes and dies N writes after that. SIGHUP
instead makes it stop there (SIGSTOP) until it is woken, when it goes on with that write. SIGUSR2 takes either
back.
"""

import asyncio
import math
import os
import signal
import sys
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from shardwright_operator import main as process
from shardwright_operator.cli import main
from shardwright_operator.cluster.api import ApiCluster


@dataclass(slots=True)
class Countdown:
    """Writes that are left to make, and the signal in the place of the next one."""

    left: float
    end: signal.Signals = signal.SIGKILL


def dying_after(countdown: Countdown) -> type[ApiCluster]:
    """The client class of a process that is to die in the place of the write after the last one left."""

    class DyingCluster(ApiCluster):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._turn = asyncio.Lock()

        async def apply(self, *arguments: Any, **options: Any) -> Any:
            return await self._counted(super().apply(*arguments, **options))

        async def delete(self, *arguments: Any, **options: Any) -> Any:
            return await self._counted(super().delete(*arguments, **options))

        async def replace_status(self, *arguments: Any, **options: Any) -> Any:
            return await self._counted(super().replace_status(*arguments, **options))

        async def _counted(self, write: Awaitable[Any]) -> Any:
            if math.isinf(countdown.left):
                return await write
            async with self._turn:
                if countdown.left <= 0:
                    countdown.left = math.inf
                    os.kill(os.getpid(), countdown.end)
                answer = await write
                countdown.left -= 1
                return answer

    return DyingCluster


def count_on_signal(writes: int) -> Countdown:
    """A countdown that begins with SIGUSR1 or SIGHUP and ends with SIGUSR2."""
    countdown = Countdown(math.inf)

    def begin(number: int, _: object) -> None:
        countdown.end = signal.SIGKILL if number == signal.SIGUSR1 else signal.SIGSTOP
        countdown.left = writes

    def end(*_: object) -> None:
        countdown.left = math.inf

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGHUP, begin)
    signal.signal(signal.SIGUSR2, end)
    return countdown


if __name__ == "__main__":
    count, *arguments = sys.argv[1:]
    on_signal = arguments[:1] == ["--on-signal"]
    process.ApiCluster = dying_after(count_on_signal(int(count)) if on_signal else Countdown(int(count)))  # type: ignore[misc]
    sys.exit(main(["operator", *arguments[on_signal:]]))
