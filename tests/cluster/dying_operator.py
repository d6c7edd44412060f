"""The operator's process, made to die by SIGKILL after its n-th write: ``dying_operator.py N [arguments]``.

A kill from outside cannot be aimed between two writes. The product has no switch for it, so its client is
wrapped here, in the very process that dies. The Lease and Events do not count as writes. Writes that the
operator sends together go one after the other, so that exactly N of them have taken place.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable
from typing import Any

from shardwright_operator import main as process
from shardwright_operator.cli import main
from shardwright_operator.cluster.api import ApiCluster


def dying_after(writes: int) -> type[ApiCluster]:
    """The client class of a process that is to die in the place of its write number ``writes + 1``."""

    class DyingCluster(ApiCluster):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._turn = asyncio.Lock()
            self._done = 0

        async def apply(self, *arguments: Any, **options: Any) -> Any:
            return await self._counted(super().apply(*arguments, **options))

        async def delete(self, *arguments: Any, **options: Any) -> Any:
            return await self._counted(super().delete(*arguments, **options))

        async def replace_status(self, *arguments: Any, **options: Any) -> Any:
            return await self._counted(super().replace_status(*arguments, **options))

        async def _counted(self, write: Awaitable[Any]) -> Any:
            async with self._turn:
                if self._done == writes:
                    os.kill(os.getpid(), signal.SIGKILL)
                answer = await write
                self._done += 1
                return answer

    return DyingCluster


if __name__ == "__main__":
    count, *arguments = sys.argv[1:]
    process.ApiCluster = dying_after(int(count))  # type: ignore[misc]
    sys.exit(main(["operator", *arguments]))
