"""Feeds the store: with the watches' events as they come, and with live LISTs that repair what they missed.

A watch that breaks begins again with a LIST, and what was deleted in between is never reported. Hence a LIST
of our own is made shortly after each such beginning, whenever a write shows that the store is behind, and
every few minutes in any case.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from shardwright_operator.cluster import Cluster, ClusterError, Kind
from shardwright_operator.observe.store import Store
from shardwright_operator.observe.views import Key

SETTLE_S = 0.5
"""Between the wish for a LIST and the LIST, so that a burst of wishes costs one."""

log = logging.getLogger(__name__)


class Intake:
    """Everything that enters the store, apart from the answers to our own writes."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        store: Store,
        enqueue: Callable[[Key], None],
        enqueue_patient: Callable[[Key], None],
        kinds: Sequence[Kind],
        namespaces: Sequence[str],
    ) -> None:
        """``enqueue`` asks for a pass over a resource with news; ``enqueue_patient`` for one without."""
        self._cluster = cluster
        self._store = store
        self._enqueue = enqueue
        self._enqueue_patient = enqueue_patient
        self._kinds = kinds
        self._namespaces: Sequence[str | None] = tuple(namespaces) or (None,)
        self._distrusted: set[str] = set()
        self._wake = asyncio.Event()
        self._listed_at: float | None = None

    def deliver(self, body: Mapping[str, Any], deleted: bool) -> None:
        """Take in a watch event."""
        try:
            keys = self._store.put(body, deleted=deleted)
        except (KeyError, TypeError, ValueError, AttributeError):
            # One odd object must not blind the operator for all others.
            log.exception("an object could not be read", extra={"kind": body.get("kind")})
            return
        self._enqueue_all(keys)

    def deliver_stranger(self, body: Mapping[str, Any], deleted: bool) -> None:
        """Take in an event of a pod that is not ours and holds GPUs."""
        self._enqueue_all(self._store.put_stranger(body, deleted=deleted))

    def replace_strangers(self, bodies: Iterable[Mapping[str, Any]], version: int) -> None:
        """Take in a LIST of all such pods."""
        self._enqueue_all(self._store.replace_strangers(bodies, version=version))

    def distrust(self, kind: str) -> None:
        """Ask for a LIST of a kind of which the store may be behind."""
        self._distrusted.add(kind)
        self._wake.set()

    async def resync(self) -> None:
        """LIST all kinds and look at every resource again; raises ClusterError."""
        for kind in self._kinds:
            await self._relist(kind)
        for key in self._store.keys():  # noqa: SIM118 - a method of its own, no mapping
            self._enqueue_patient(key)
        self._listed_at = asyncio.get_running_loop().time()

    async def reread(self) -> None:
        """LIST the resources themselves; raises ClusterError."""
        await self._relist(self._kinds[0])

    async def run(self, interval_s: float) -> None:
        """Resync every so many seconds and LIST on demand, for ever."""
        loop = asyncio.get_running_loop()
        due = loop.time() + interval_s
        while True:
            try:
                async with asyncio.timeout_at(due):
                    await self._wake.wait()
                    await asyncio.sleep(SETTLE_S)
            except TimeoutError:
                # Nobody asked for a LIST until the next resync is due: that is how most waits end.
                pass
            try:
                if loop.time() >= due:
                    await self.resync()
                    due = loop.time() + interval_s
                else:
                    await self._mend()
            except ClusterError as error:
                log.warning("a live list failed", extra={"why": error.message})
                await asyncio.sleep(max(SETTLE_S, error.retry_after_s or 0.0))

    def age_s(self) -> float:
        """Seconds since the last full resync; infinite before the first."""
        return (
            float("inf") if self._listed_at is None else asyncio.get_running_loop().time() - self._listed_at
        )

    async def _mend(self) -> None:
        self._wake.clear()
        for kind in self._kinds:
            if kind.kind in self._distrusted:
                await self._relist(kind)

    async def _relist(self, kind: Kind) -> None:
        self._distrusted.discard(kind.kind)
        # In the first LIST all is new, and so nothing is news.
        enqueue = self._enqueue_patient if self._listed_at is None else self._enqueue
        uids: set[str] = set()
        versions: set[int] = set()
        try:
            for namespace in self._namespaces if kind.namespaced else (None,):
                # A page at a time, since whole objects take many times the memory of what is kept of them.
                async for page in self._cluster.list(kind.kind, namespace):
                    keys, seen = self._store.put_listed(kind.kind, page.items)
                    for key in keys:
                        enqueue(key)
                    uids |= seen
                    versions.add(page.version)
        except ClusterError:
            self.distrust(kind.kind)
            raise
        # The oldest version: an object that is newer than one of several lists is not taken for gone.
        self._enqueue_all(self._store.prune(kind.kind, uids, version=min(versions, default=0)))

    def _enqueue_all(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._enqueue(key)
