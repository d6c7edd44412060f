"""Runs kopf beside the operator's own event loop and brings its events over.

kopf takes all tasks of its loop for its own, and sets the signal handlers of the main thread: in a thread
with a loop of its own it can do neither harm.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import kopf

from shardwright_operator.cluster import Kind
from shardwright_operator.handlers import Deliver, make_registry, make_settings
from shardwright_operator.watch_session import Heard

STOP_S = 5.0
"""kopf's watches are given so long to close; the thread does not keep the process alive after that."""


class UnservedError(Exception):
    """The API server serves a kind no more that was watched: its definition has been deleted."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(f"the cluster does not serve {kind.plain_kind} ({kind.api_version}) any more")
        self.kind = kind


class WatchThread:
    """kopf in a thread of its own; its events are handed over to the operator's loop."""

    def __init__(
        self,
        kinds: Sequence[Kind],
        namespaces: Sequence[str],
        kubeconfig: str | None,
        deliver: Deliver,
        listed: Callable[[str], None],
    ) -> None:
        """``deliver`` takes the events; ``listed`` is told of each LIST with which a watch begins."""
        self._kinds = kinds
        self._namespaces = namespaces
        self._kubeconfig = kubeconfig
        self._deliver = deliver
        self._listed = listed
        self._stop = threading.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Begin to watch; the task ends when the watching does, with UnservedError when a kind is gone."""
        self._task = asyncio.create_task(self._run(), name="watch")
        return self._task

    async def stop(self) -> None:
        """End watching, and wait for it a moment."""
        self._stop.set()
        if self._task is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(asyncio.shield(self._task), timeout=STOP_S)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def deliver(body: Mapping[str, Any], deleted: bool) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has closed: the process is ending
                loop.call_soon_threadsafe(self._deliver, body, deleted)

        def listed(kind: str) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._listed, kind)

        def unserved(kind: Kind) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, ended, UnservedError(kind))

        def ending() -> None:
            # When one watcher fails kopf ends, and waits for the others, which wait for a login that never
            # comes: with an event that was no JSON the operator stayed leader, and saw nothing any more.
            late = TimeoutError("kopf does not end")
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.call_later, STOP_S, _settle, ended, late)

        def target() -> None:
            failure: BaseException | None = None
            try:
                watch(
                    self._kinds,
                    self._namespaces,
                    self._kubeconfig,
                    deliver,
                    Heard(listed=listed, unserved=unserved),
                    ending=ending,
                    stop=self._stop,
                )
            except BaseException as error:  # noqa: BLE001 - handed to the other thread
                failure = error
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, ended, failure)

        threading.Thread(target=target, name="kopf", daemon=True).start()
        await ended


def _settle(future: "asyncio.Future[None]", failure: BaseException | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(None)
    elif isinstance(failure, UnservedError):
        future.set_exception(failure)
    else:
        future.set_exception(RuntimeError(f"watching failed: {failure!r}"))


def watch(
    kinds: Sequence[Kind],
    namespaces: Sequence[str],
    kubeconfig: str | None,
    deliver: Deliver,
    heard: Heard,
    *,
    ending: Callable[[], None],
    stop: threading.Event,
) -> None:
    """Watch until stopped, in the calling thread and an event loop of its own; returns early only by a fault.

    ``ending`` is called when kopf has begun to end.
    kopf takes every task of its loop for its own and cancels them all at its end: so it gets a loop alone.
    """
    # Signals are the main thread's, as they should be; kopf warns of that at each start.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    operator = kopf.operator(
        registry=make_registry(kinds, kubeconfig, deliver, heard, give_up=stop.set, ending=ending),
        settings=make_settings(kinds),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=tuple(namespaces),
        stop_flag=stop,
    )
    asyncio.run(operator)
