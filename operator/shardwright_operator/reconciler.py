"""One pass over one ModelDeployment: read what is known, decide, carry it out. Level-triggered.

A pass never remembers anything that the next one needs, the notes about refused writes apart.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from shardwright_operator.apply.claims import ClaimReader
from shardwright_operator.apply.confirmation import Confirmer
from shardwright_operator.apply.events import EventRecorder
from shardwright_operator.apply.notes import WriteLedger
from shardwright_operator.apply.retry import RetryLaterError
from shardwright_operator.apply.writer import Writer
from shardwright_operator.cluster import ClusterError, ForbiddenError
from shardwright_operator.decide.decision import Decision, Event
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.store import Store
from shardwright_operator.observe.views import Key, ResourceView
from shardwright_operator.served_crd import SETTLE_S, ServedCrd

FORBIDDEN_DELAY_S = 10.0
"""Before a request is repeated for which a right is missing: somebody must act first."""

Decide = Callable[[Observed, datetime], Decision]

log = logging.getLogger(__name__)


class Reconciler:
    """Passes over all ModelDeployments."""

    def __init__(
        self,
        *,
        served: ServedCrd,
        store: Store,
        decide: Decide,
        confirmer: Confirmer,
        writer: Writer,
        claims: ClaimReader,
        events: EventRecorder,
        ledger: WriteLedger,
        clock: Callable[[], datetime],
    ) -> None:
        self._served = served
        self._store = store
        self._decide = decide
        self._confirmer = confirmer
        self._writer = writer
        self._claims = claims
        self._events = events
        self._ledger = ledger
        self._clock = clock

    async def reconcile(self, key: Key) -> float | None:
        """Bring one resource nearer to its goal; returns the seconds after which to look again, if any.

        Raises RetryLaterError for everything that a later attempt can mend.
        """
        try:
            return await self._pass(key)
        except ForbiddenError as error:
            raise RetryLaterError(error.message, error="Forbidden", at_least_s=FORBIDDEN_DELAY_S) from error
        except ClusterError as error:
            name = type(error).__name__.removesuffix("Error")
            raise RetryLaterError(error.message, error=name, at_least_s=error.retry_after_s or 0.0) from error

    async def _pass(self, key: Key) -> float | None:
        if await self._served.obstacles():
            return SETTLE_S
        claim = await self._claims.of(self._store.resource(key))
        wakings = self._store.wakings
        observed = self._store.observe(key, claim=claim, notes=self._ledger.of(key))
        resource = observed.resource
        if resource is None:
            self._ledger.forget(key)
            return None
        await self._writer.look_again(resource)
        observed = replace(observed, notes=self._ledger.of(key))
        if self._served.in_doubt():
            return SETTLE_S
        decision = self._decide(observed, self._clock())
        self._store.demands.starting(key, decision.starts)
        try:
            return await self._carry_out(resource, decision, observed, wakings)
        finally:
            self._store.demands.starting(key, ())

    async def _carry_out(
        self, resource: ResourceView, decision: Decision, observed: Observed, wakings: int
    ) -> float | None:
        """Confirm, write and tell; ``wakings`` are those of the store when it was observed."""
        key = resource.key
        await self._confirmer.confirm(key, decision.confirm)
        if decision.confirm and self._store.observe(key).obituaries != observed.obituaries:
            # What ended the pod often comes a moment after what took its place.
            raise RetryLaterError("more is known of the pods that are gone")
        try:
            await self._writer.write(resource, decision.stages)
            if decision.status is not None:
                await self._writer.write_status(resource, decision.status)
        except (RetryLaterError, ClusterError):
            # The next pass finds the first write done, and would no longer know what it was done for.
            await self._tell(resource, decision.events)
            raise
        await self._tell(resource, decision.events)
        if self._ledger.of(key) != observed.notes:
            # The status was made before the writes, and does not know yet what became of them.
            return 0.0
        if self._store.wakings != wakings and self._store.waits(key):
            # What it waits for may have come while the pass was under way, before it was known to wait.
            return 0.0
        return decision.requeue_after_s

    async def _tell(self, resource: ResourceView, events: Iterable[Event]) -> None:
        for event in events:
            log.info(event.message, extra={"key": str(resource.key), "reason": event.reason})
            await self._events.post(resource, event)
