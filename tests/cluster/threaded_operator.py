"""A whole operator in a thread of the calling process, for tests and benchmarks."""

import asyncio
import threading
from types import TracebackType
from typing import Self

from shardwright_operator.main import Operator
from shardwright_operator.reconciler import Decide
from shardwright_operator.settings import Settings

STOP_S = 30.0


class ThreadedOperator:
    """Context manager: on entry the operator is started and, unless told otherwise, awaited until it works.

    ``operator`` gives its metrics and ports, ``exit_code`` how it ended.
    """

    def __init__(
        self,
        settings: Settings,
        decide: Decide | None = None,
        *,
        wait_ready: bool = True,
        timeout_s: float = 60.0,
    ) -> None:
        self._settings = settings
        self._decide = decide
        self._wait_ready = wait_ready
        self._timeout_s = timeout_s
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._main, name="operator", daemon=True)
        self.operator: Operator
        self.exit_code: int | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        if self._wait_ready:
            self.wait_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_ready(self) -> None:
        """Wait until it leads and works; raises TimeoutError."""
        assert self._loop is not None
        ready = self.operator.ready.wait()
        asyncio.run_coroutine_threadsafe(ready, self._loop).result(self._timeout_s)

    def stop(self) -> None:
        """Stop it in an orderly way, as SIGTERM does."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            raise TimeoutError("the operator did not stop")

    def _main(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.operator = Operator(self._settings, self._decide)
        self._started.set()
        self.exit_code = await self.operator.run(self._stop)
