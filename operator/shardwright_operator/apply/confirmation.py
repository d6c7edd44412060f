"""Asks the live API whether what a step rests on is so: a watch may be late, or have lost an event."""

from collections.abc import Callable, Iterable
from functools import partial

from shardwright_operator.api.constants import KIND
from shardwright_operator.apply.batch import all_of
from shardwright_operator.apply.retry import RetryLaterError
from shardwright_operator.cluster import Cluster
from shardwright_operator.decide.decision import Claim, GoneClaim, PodClaim, ResourceClaim, SetClaim
from shardwright_operator.observe.projection import controller_of
from shardwright_operator.observe.store import Store
from shardwright_operator.observe.views import ChildKind, Key


class Confirmer:
    """Confirms the beliefs of a decision before it is carried out."""

    def __init__(
        self, cluster: Cluster, store: Store, *, distrust: Callable[[str], None] = lambda _kind: None
    ) -> None:
        """``distrust`` asks for a live LIST of a kind of which the store was seen to be behind."""
        self._cluster = cluster
        self._store = store
        self._distrust = distrust

    async def confirm(self, key: Key, claims: Iterable[Claim]) -> None:
        """Check beliefs against the live API; a wrong one repairs the store and raises RetryLaterError."""
        await all_of(partial(self._confirm, key, claim) for claim in claims)

    async def _confirm(self, key: Key, claim: Claim) -> None:
        if isinstance(claim, ResourceClaim):
            await self._confirm_resource(key, claim)
            return
        kind = str(ChildKind.STATEFUL_SET) if isinstance(claim, SetClaim) else "Pod"
        live = await self._cluster.find(kind, key.namespace, claim.name)
        if live is None:
            return
        self._store.put_read(live)
        if isinstance(claim, GoneClaim):
            raise RetryLaterError(f"pod {claim.name} has come back")
        if isinstance(claim, PodClaim):
            wrong = live["metadata"]["uid"] == claim.uid
        else:
            wrong = controller_of(live).get("uid", "") == claim.owner_uid
        if wrong and "deletionTimestamp" not in live["metadata"]:
            raise RetryLaterError(f"{kind} {claim.name} is still there")

    async def _confirm_resource(self, key: Key, claim: ResourceClaim) -> None:
        live = await self._cluster.find(KIND, key.namespace, claim.name)
        if live is None or live["metadata"]["uid"] != claim.uid:
            self._distrust(KIND)
            raise RetryLaterError(f"{KIND} {claim.name} is another one by now")
