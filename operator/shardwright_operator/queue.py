"""Keyed work queue: each key at most once in it, at most one run per key at a time, back-off per key.

kopf runs events of a resource and of its children in different tasks; without this queue two passes over one
resource would overlap, and a burst of fifty child events would cost fifty passes.
"""

import asyncio
import heapq
import itertools
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from shardwright_operator.apply.retry import RetryLaterError

K = TypeVar("K", bound=Hashable)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential delays with jitter. Full delays are drawn from (1 - jitter) x d to d."""

    base_s: float = 0.05
    cap_s: float = 60.0
    jitter: float = 0.3

    def delay_s(self, failures: int, draw: float) -> float:
        """Delay after so many failures in a row (1 is the first); ``draw`` is a random number in [0, 1)."""
        whole = min(self.cap_s, self.base_s * 2.0 ** min(failures - 1, 32))
        return whole * (1.0 - self.jitter * draw)


class WorkQueue(Generic[K]):
    """First come, first served among the ready keys, those apart that may wait until no other is ready.

    Lives in one event loop, whose clock it uses.
    """

    def __init__(self, *, backoff: Backoff | None = None, draw: Callable[[], float] = random.random) -> None:
        self._backoff = backoff or Backoff()
        self._draw = draw
        self._ready: deque[K] = deque()
        self._patient: dict[K, None] = {}
        self._queued: set[K] = set()
        self._running: dict[K, float] = {}
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._order = itertools.count()
        self._closed = False
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, key: K) -> None:
        """Run the key soon; while it runs, once more after it."""
        if self._closed:
            return
        if key in self._running:
            self._again.add(key)
        elif key not in self._queued:
            self._patient.pop(key, None)
            self._queued.add(key)
            self._ready.append(key)
            self._wake.set()

    def add_patient(self, key: K) -> None:
        """Run the key when no other is ready: nothing has happened to it that anybody knows of.

        A look at all keys takes seconds when there are a thousand, and a loss must not wait behind it.
        """
        if key in self._running:
            self.add(key)
        elif not self._closed and key not in self._queued:
            self._patient[key] = None
            self._wake.set()

    def add_after(self, key: K, delay_s: float) -> None:
        """Run the key in so many seconds, or earlier if an earlier time is already set."""
        if delay_s <= 0:
            self.add(key)
            return
        due = asyncio.get_running_loop().time() + delay_s
        if self._closed or self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._later, (due, next(self._order), key))
        self._arm()

    def retry(self, key: K, *, at_least_s: float = 0.0) -> float:
        """Run the key again after its back-off; returns the delay in seconds."""
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        delay = max(at_least_s, self._backoff.delay_s(failures, self._draw()))
        self.add_after(key, delay)
        return delay

    def succeeded(self, key: K) -> None:
        """Forget the key's failures."""
        self._failures.pop(key, None)

    def forget(self, key: K) -> None:
        """Drop what is kept about a key that no longer exists; a run that is queued still takes place."""
        self._failures.pop(key, None)
        self._due.pop(key, None)

    async def take(self) -> K | None:
        """The next key, marked as running; None when the queue is closed."""
        while not self._closed:
            if self._ready or self._patient:
                key = self._next()
                self._due.pop(key, None)
                self._running[key] = asyncio.get_running_loop().time()
                return key
            self._wake.clear()
            await self._wake.wait()
        return None

    def _next(self) -> K:
        if self._ready:
            key = self._ready.popleft()
            self._queued.discard(key)
        else:
            key = next(iter(self._patient))
            del self._patient[key]
        return key

    def done(self, key: K) -> None:
        """The run of the key has ended, well or not."""
        self._running.pop(key, None)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        """Give out no more keys. Runs under way are not touched."""
        self._closed = True
        self._wake.set()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def depth(self) -> int:
        """Keys that could run now if a worker were free."""
        return len(self._ready) + len(self._patient)

    @property
    def waiting(self) -> int:
        """Keys that have a time to run at."""
        return len(self._due)

    @property
    def running(self) -> int:
        """Keys that run now."""
        return len(self._running)

    def longest_run_s(self) -> float:
        """Age of the oldest run under way."""
        now = asyncio.get_running_loop().time()
        return max((now - began for began in self._running.values()), default=0.0)

    def _arm(self) -> None:
        """Set the one timer to the earliest time; entries that were overtaken are dropped on the way."""
        while self._later and self._due.get(self._later[0][2]) != self._later[0][0]:
            heapq.heappop(self._later)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._later and not self._closed:
            self._timer = asyncio.get_running_loop().call_at(self._later[0][0], self._fire)

    def _fire(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._later and self._later[0][0] <= now:
            due, _, key = heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        self._timer = None
        self._arm()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How one run went, for the metrics; ``error`` is a short class of errors, empty for none."""

    seconds: float
    error: str = ""


async def work(
    queue: WorkQueue[K],
    reconcile: Callable[[K], Awaitable[float | None]],
    observe: Callable[[Run], None] = lambda _run: None,
) -> None:
    """Run keys until the queue closes. Nothing that a run raises ends the worker."""
    loop = asyncio.get_running_loop()
    while (key := await queue.take()) is not None:
        # A pass that writes nothing never waits: without this, a look at a thousand keys would be one long
        # turn of the loop, in which no event came in and no Lease was renewed.
        await asyncio.sleep(0)
        began = loop.time()
        error = ""
        try:
            requeue_after_s = await reconcile(key)
        except RetryLaterError as again:
            error = again.error
            delay = queue.retry(key, at_least_s=again.at_least_s)
            level = logging.WARNING if error else logging.DEBUG
            log.log(level, "again in %.2f s", delay, extra={"key": str(key), "why": again.why})
        except Exception as failure:
            error = type(failure).__name__
            delay = queue.retry(key)
            log.exception("reconciling failed; again in %.2f s", delay, extra={"key": str(key)})
        else:
            queue.succeeded(key)
            if requeue_after_s is not None:
                queue.add_after(key, requeue_after_s)
        finally:
            queue.done(key)
        observe(Run(seconds=loop.time() - began, error=error))
