"""Is the CRD that the cluster serves the one that this operator was built for?

Asked at the start, and again whenever something is about to be decided: a CRD may be replaced at any time, by
the chart of an older release for one, and from then on the API server cuts fields off what it hands out.
No watch tells of that. What is asked is the published OpenAPI document, which every account may read; a right
to read CRDs would be one for the whole cluster. It follows the CRD within seconds, and meanwhile a spec that
changes without an edit gives the new CRD away.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from shardwright_operator.api.constants import API_VERSION, GROUP, KIND, VERSION
from shardwright_operator.api.served_schema import cut_fields, describe_cut
from shardwright_operator.cluster import Cluster, ClusterError

INSTALL = "install the CRD (kubectl apply --server-side -f crds/, or the chart with crds.enabled=true)"
NOT_SERVED = f"the cluster does not serve {KIND} ({API_VERSION}): {INSTALL}"
FRESH_S = 2.0
"""An answer is good for so long: passes come in bursts."""
SETTLE_S = 5.0
"""Within which a changed CRD is published; nothing is decided until then."""
LOOK_S = 10.0
"""Between looks while nothing is to be decided, for readiness."""

log = logging.getLogger(__name__)


class ServedCrd:
    """The served schema held against the operator's own."""

    def __init__(self, cluster: Cluster, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._reread: Callable[[], Awaitable[None]] | None = None
        self._unedited_changes: Callable[[], int] = lambda: 0
        self._clock_s = clock_s
        self._lock = asyncio.Lock()
        self._address = ""
        self._asked_at_s = float("-inf")
        self._settled_at_s = float("-inf")
        self._changes_known = 0
        self.known: list[str] = []
        """What stands in the way by the last answer, in words that say what to do."""

    def guard(self, *, reread: Callable[[], Awaitable[None]], unedited_changes: Callable[[], int]) -> None:
        """Guard a store: ``unedited_changes`` counts its specs that changed without an edit.

        ``reread`` takes in all resources anew: what was read under another schema may lack fields.
        """
        self._reread = reread
        self._unedited_changes = unedited_changes

    def in_doubt(self) -> bool:
        """Whether something was read since the last answer that may have been cut."""
        unanswered = self._unedited_changes() != self._changes_known or self._clock_s() < self._settled_at_s
        return unanswered or bool(self.known)

    async def obstacles(self) -> list[str]:
        """What stands in the way now; raises ClusterError."""
        async with self._lock:
            now_s, changes = self._clock_s(), self._unedited_changes()
            if changes != self._changes_known:
                self._changes_known = changes
                self._settled_at_s = now_s + SETTLE_S
            if now_s < self._settled_at_s:
                return ["a spec has changed without an edit: the CRD is being replaced"]
            if now_s - self._asked_at_s >= FRESH_S:
                await self._ask()
            return self.known

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            try:
                await self.obstacles()
            except ClusterError as error:
                log.warning("the served CRD cannot be looked at", extra={"why": error.message})
            await asyncio.sleep(LOOK_S)

    async def _ask(self) -> None:
        address = await self._cluster.schema_address(GROUP, VERSION)
        if not address:
            self._found([f"the API server publishes no schema of {KIND} ({API_VERSION}): {INSTALL}"])
        elif address != self._address:
            served = await self._cluster.schema(address, GROUP, VERSION, KIND)
            fields = cut_fields(served)
            wishes = [field for field in fields if field.split(".")[0] == "spec"]
            if wishes:
                text = f"the CRD in this cluster is not this operator's: it cuts {describe_cut(wishes)}"
                self._found([f"{text}; nothing is changed meanwhile: {INSTALL}"])
            else:
                if fields:
                    # A status is only a view: what it lacks is missed by its readers and by nobody here.
                    log.warning("the CRD in this cluster cuts %s: %s", describe_cut(fields), INSTALL)
                if self._reread is not None:
                    await self._reread()
                    # Whatever that has changed was read under the schema that was just found to be whole.
                    self._changes_known = self._unedited_changes()
                self._found([])
        self._address = address
        self._asked_at_s = self._clock_s()

    def _found(self, obstacles: list[str]) -> None:
        if obstacles and obstacles != self.known:
            log.error("%s", obstacles[0])
        elif self.known and not obstacles:
            log.info("the CRD keeps all that a spec may say")
        self.known = obstacles
