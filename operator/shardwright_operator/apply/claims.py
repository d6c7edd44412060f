"""Reads of the PersistentVolumeClaims that specs name: by live GET, kept for a moment.

Claims are not watched: their label is the user's, so a watch would bring every claim of the cluster.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from shardwright_operator.cluster import Cluster, NotFoundError
from shardwright_operator.observe.views import UNBOUND, ClaimState, ClaimView, ResourceView

FOUND_S = 60.0
MISSING_S = 5.0
UNBOUND_S = 5.0
KEPT = 1024


class _Kept(NamedTuple):
    until: datetime
    view: ClaimView


class ClaimReader:
    """Claims by namespace and name."""

    def __init__(self, cluster: Cluster, clock: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._kept: dict[tuple[str, str], _Kept] = {}

    async def of(self, resource: ResourceView | None) -> ClaimView | None:
        """The claim that a resource names, as it is now or was a moment ago; None if it names none."""
        if resource is None or not resource.claim_name:
            return None
        return await self._read(resource.key.namespace, resource.claim_name)

    async def _read(self, namespace: str, name: str) -> ClaimView:
        now = self._clock()
        kept = self._kept.get((namespace, name))
        if kept is not None and now < kept.until:
            return kept.view
        try:
            body = await self._cluster.get("PersistentVolumeClaim", namespace, name)
        except NotFoundError:
            view = ClaimView(name=name, state=ClaimState.MISSING)
            seconds = MISSING_S
        else:
            spec = body.get("spec") or {}
            view = ClaimView(
                name=name,
                state=ClaimState.FOUND,
                access_modes=tuple(spec.get("accessModes") or ()),
                created=str(body["metadata"].get("creationTimestamp") or ""),
                phase=str((body.get("status") or {}).get("phase") or ""),
                storage_class=str(spec.get("storageClassName") or ""),
            )
            seconds = UNBOUND_S if view.phase == UNBOUND else FOUND_S
        if len(self._kept) >= KEPT:
            self._kept.clear()
        self._kept[namespace, name] = _Kept(now + timedelta(seconds=seconds), view)
        return view
