"""Carries out the writes of a decision, stage by stage, and takes each answer back into the store.

The answers go into the store at once, so that the next pass sees them without waiting for a watch. A write
that the server refuses leaves a note and ends the pass: what the status says about it, the next pass decides.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from shardwright_operator.api.constants import FIELD_MANAGER, KIND, Label
from shardwright_operator.apply.batch import all_of
from shardwright_operator.apply.notes import WriteLedger
from shardwright_operator.apply.retry import RetryLaterError
from shardwright_operator.cluster import (
    Cluster,
    ClusterError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    Manifest,
    NotFoundError,
)
from shardwright_operator.decide.decision import (
    Apply,
    Delete,
    Write,
)
from shardwright_operator.decide.drift import body_digest, difference
from shardwright_operator.observe.projection import WRITTEN_ONCE, controller_of, project_child
from shardwright_operator.observe.store import Store
from shardwright_operator.observe.views import GANG_KINDS, ChildKind, Key, ResourceView

FAULT_DELAY_S = 10.0
"""Before a status that the server refuses is written again: that is a defect, not a passing state."""

_NO_DRY_RUN = "does not support dry run"
"""In the server's words when a webhook cannot be asked without effect: then only the write itself tells."""

log = logging.getLogger(__name__)


class Writer:
    """Writes for any ModelDeployment; one pass at a time per key is the queue's to see to."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        ledger: WriteLedger,
        clock: Callable[[], datetime],
        *,
        distrust: Callable[[str], None] = lambda _kind: None,
        wake: Callable[[Key], None] = lambda _key: None,
    ) -> None:
        """``distrust`` asks for a live LIST of a kind of which the store was seen to be behind.

        ``wake`` asks for a pass over a resource to which an answer is news.
        """
        self._cluster = cluster
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._distrust = distrust
        self._wake = wake

    async def look_again(self, resource: ResourceView) -> None:
        """Ask after names that somebody else held, when their time has come. Nothing is written.

        A decision touches nothing while a name is held, so without this it would stay so for ever.
        """
        key, now = resource.key, self._clock()
        for kind, name in self._ledger.conflicts_due(key, now):
            live = await self._cluster.find(kind, key.namespace, name)
            if live is None or controller_of(live).get("uid", "") == resource.uid:
                self._ledger.deleted(key, kind, name)
            else:
                self._ledger.still_foreign(key, (kind, name), now)

    async def write(self, resource: ResourceView, stages: Iterable[tuple[Write, ...]]) -> None:
        """Carry out the stages in order, the writes of a stage together."""
        for stage in stages:
            await all_of(
                partial(self._apply, resource, write)
                if isinstance(write, Apply)
                else partial(self._delete, resource.key, write)
                for write in stage
            )

    async def write_status(self, resource: ResourceView, status: Manifest) -> None:
        """Put the whole status in place, unless it stands as far as the installed CRD lets it."""
        key = resource.key
        if self._ledger.was_cut_to(key, status, resource.status):
            return
        try:
            answer = await self._cluster.replace_status(KIND, key.namespace, key.name, resource.uid, status)
        except NotFoundError:
            self._distrust(KIND)
            return
        except InvalidError as error:
            live = await self._cluster.find(KIND, key.namespace, key.name)
            if live is None or live["metadata"]["uid"] != resource.uid:
                self._distrust(KIND)
                raise RetryLaterError("the resource was created anew") from error
            log.error("the server refuses the status", extra={"key": str(key), "why": error.message})  # noqa: TRY400
            raise RetryLaterError(error.message, error="StatusRefused", at_least_s=FAULT_DELAY_S) from error
        self._take_in(key, answer)
        now = self._store.resource(key)
        if now is not None and not now.asks_as(resource):
            # An edit made during the pass came with this answer. The watch tells of it by an older version,
            # which is no news: nobody looked at it until the next LIST of all, up to five minutes later.
            self._wake(key)
        kept = answer.get("status") or {}
        if self._ledger.status_written(key, status, kept):
            log.warning(
                "the server kept another status than what was written; is the CRD older than the operator?",
                extra={"key": str(key), "why": difference(status, kept)},
            )

    def _take_in(self, key: Key, answer: Manifest, *, deleted: bool = False) -> None:
        """Put an answer into the store, and wake whom else it concerns: to the watch it will be no news.

        A group that stops to wait for GPUs, because its namespace takes no more pods for one, says so in its
        status; those behind it had waited for their next look, up to 30 s later.
        """
        for other in self._store.put(answer, deleted=deleted) - {key}:
            self._wake(other)

    async def _apply(self, resource: ResourceView, write: Apply) -> None:
        key = resource.key
        try:
            answer = await self._send(write)
        except ConflictError as error:
            await self._conflict(resource, write, error)
            return
        except (InvalidError, ForbiddenError) as error:
            if write.rehearsal and _NO_DRY_RUN in error.message:
                return
            if isinstance(error, InvalidError) and not write.owned:
                # Two controllers, or a field that cannot change: the name may be somebody else's.
                await self._refuse_foreign(resource, write, error)
            self._refuse(key, write, error.message, foreign=False)
            return
        except NotFoundError as error:
            if write.kind not in GANG_KINDS:
                raise
            # The kind is not Kubernetes' own: its API was there at the start, and has been removed.
            self._refuse(key, write, f"{error.message}; is its API still installed?", foreign=False)
            return
        if write.rehearsal:
            return
        if (
            not write.owned
            and _has_other_managers(answer)
            and not self._store.has_buried(answer["metadata"]["uid"])
        ):
            await self._withdraw(resource, write)
        self._take_in(key, answer)
        altered = difference(write.manifest, answer)
        kept = project_child(answer) if altered else None
        self._ledger.written(
            key, write, altered=altered, answer=body_digest(kept) if kept else "", now=self._clock()
        )
        log.info(
            "applied", extra={"key": str(key), "kind": str(write.kind), "name_": write.name, "why": write.why}
        )
        if altered:
            log.warning(
                "the server kept something else than what was applied",
                extra={"key": str(key), "kind": str(write.kind), "name_": write.name, "why": altered},
            )

    async def _send(self, write: Apply) -> Manifest:
        """Create or apply; a Service that others have made invalid with our fields is put right first.

        An apply adds our port beside one that somebody renumbered, and the server then refuses two ports of
        one name. Other children have no such lists, or refuse for reasons that overwriting does not mend.
        """
        # Of what never changes a creation will do: it costs the server half of an apply, and cannot merge
        # into what stands. Of others an apply must own each field from the first: one that only a creation
        # had brought would stay when a later apply leaves it out. Neither may a ControllerRevision be
        # created: the server keeps its data as the bytes that came, and takes the order of keys in any
        # later patch, also that of the garbage collector that orphans it, for a change of what must not
        # change.
        if write.kind in WRITTEN_ONCE and not write.owned:
            return await self._cluster.create(write.manifest)
        try:
            return await self._cluster.apply(
                write.manifest, force=write.owned, uid=write.uid, dry_run=write.rehearsal
            )
        except InvalidError:
            if not write.owned or write.kind is not ChildKind.SERVICE:
                raise
        await self._cluster.overwrite(write.manifest)
        return await self._cluster.apply(write.manifest, force=True)

    async def _conflict(self, resource: ResourceView, write: Apply, error: ConflictError) -> None:
        """Find out whose the object is: not ours is a refusal; ours means that the store was behind."""
        live = await self._refuse_foreign(resource, write, error)
        if live is None:
            self._distrust(write.kind)
        else:
            self._store.put_read(live)
        raise RetryLaterError(f"{write.kind} {write.name}: {error.message}") from error

    async def _refuse_foreign(
        self, resource: ResourceView, write: Apply, error: ClusterError
    ) -> Manifest | None:
        """Refuse the write if the name is somebody else's; else return what stands there, if anything."""
        live = await self._cluster.find(write.kind, resource.key.namespace, write.name)
        if live is not None and controller_of(live).get("uid", "") != resource.uid:
            self._refuse(resource.key, write, f"{_whose(live)}: {error.message}", foreign=True)
        return live

    async def _withdraw(self, resource: ResourceView, write: Apply) -> None:
        """Take our fields out of an object that stood already under the name of a child.

        Server-side apply knows no "create only", and merges without a conflict into an object whose fields
        are others: a Service without a selector, for one. An empty apply gives up what the first one added.
        """
        metadata = {name: write.manifest["metadata"][name] for name in ("name", "namespace")}
        bare = {**{name: write.manifest[name] for name in ("apiVersion", "kind")}, "metadata": metadata}
        answer = await self._cluster.apply(bare, force=False)
        self._refuse(resource.key, write, _whose(answer), foreign=True)

    def _refuse(self, key: Key, write: Apply, message: str, *, foreign: bool) -> None:
        self._ledger.refused(key, write, message, foreign=foreign, now=self._clock())
        log.warning(
            "the server refused a write",
            extra={"key": str(key), "kind": str(write.kind), "name_": write.name, "why": message},
        )
        raise RetryLaterError(f"{write.kind} {write.name} was refused")

    async def _delete(self, key: Key, write: Delete) -> None:
        kind = str(write.kind or "Pod")
        try:
            answer = await self._cluster.delete(
                kind, key.namespace, write.name, uid=write.uid, grace_period_s=write.grace_period_s
            )
        except NotFoundError:
            # What was wanted is so; only the store does not know it: a watch is late or has lost an event.
            self._distrust(kind)
            return
        except ConflictError as error:
            live = await self._cluster.find(kind, key.namespace, write.name)
            if live is None:
                self._distrust(kind)
            else:
                self._store.put_read(live)
            if write.kind is None:
                # A set's controller was faster. The pod that was meant is gone, as wanted, and a pass that
                # ended here would leave a status behind which tells nothing of what was done.
                self._wake(key)
                return
            raise RetryLaterError(f"{kind} {write.name} is another one by now") from error
        if answer is not None and "deletionTimestamp" in answer["metadata"]:
            self._take_in(key, answer)
        elif write.kind is not None:
            self._take_in(key, _gone(key, write.kind, write), deleted=True)
        if write.kind is not None:
            self._ledger.deleted(key, write.kind, write.name)
        log.info("deleted", extra={"key": str(key), "kind": kind, "name_": write.name, "why": write.why})


def _whose(body: Manifest) -> str:
    return "it has another controller" if controller_of(body) else "it has no controller"


def _has_other_managers(body: Manifest) -> bool:
    """Whether anybody but us has written it, apart from its status: then it is older than our first write."""
    managers = body["metadata"].get("managedFields") or ()
    return any(m.get("manager") != FIELD_MANAGER and not m.get("subresource") for m in managers)


def _gone(key: Key, kind: ChildKind, write: Delete) -> Manifest:
    """As much of a deleted child as the store needs to forget it."""
    return {
        "kind": str(kind),
        "metadata": {
            "namespace": key.namespace,
            "name": write.name,
            "uid": write.uid,
            "labels": {Label.DEPLOYMENT: key.name},
        },
    }
