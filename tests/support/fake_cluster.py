"""A Cluster in memory, for tests of the shell: versions, UIDs and conflicts, and errors on demand.

It keeps what matters to the callers and no more: one field manager per object, no defaulting, no schema. What
a real API server does with the requests is tested on one.
"""

import copy
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardwright_operator.api.crd import root_schema
from shardwright_operator.api.gang import kind_of
from shardwright_operator.cluster import (
    AlreadyExistsError,
    ClusterError,
    ConflictError,
    InvalidError,
    Manifest,
    NotFoundError,
    Page,
)

Place = tuple[str, str, str]
"""Kind, namespace, name."""


@dataclass
class FakeCluster:
    """``calls`` records every request as (verb, kind, name); ``fail`` may return an error for one."""

    objects: dict[Place, dict[str, Any]] = field(default_factory=dict)
    foreign: set[Place] = field(default_factory=set)
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    fail: Callable[[str, str, str], ClusterError | None] = lambda _verb, _kind, _name: None
    alter: Callable[[dict[str, Any]], None] = lambda _body: None
    served: frozenset[str] = frozenset({"ModelDeployment"})
    """Kinds that every group and version serves."""
    schema_at: str = "/openapi/ours"
    schemas: dict[str, Manifest] = field(default_factory=lambda: {"/openapi/ours": root_schema()})
    _versions: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def seed(self, body: Manifest, *, foreign: bool = False) -> dict[str, Any]:
        """Put an object there as somebody else did."""
        place = _place(body)
        if foreign:
            self.foreign.add(place)
        return copy.deepcopy(self._store(place, body))

    async def get(self, kind: str, namespace: str, name: str) -> Manifest:
        self._called("get", kind, name)
        return copy.deepcopy(self._existing((kind, namespace, name)))

    async def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        self._called("find", kind, name)
        return copy.deepcopy(self.objects.get((kind, namespace, name)))

    async def list(self, kind: str, namespace: str | None) -> AsyncIterator[Page]:
        self._called("list", kind, namespace or "")
        items = [
            copy.deepcopy(body)
            for (its_kind, its_namespace, _), body in self.objects.items()
            if its_kind == kind and namespace in {None, its_namespace}
        ]
        yield Page(items=tuple(items), version=next(self._versions))

    async def apply(
        self, manifest: Manifest, *, force: bool, uid: str | None = None, dry_run: bool = False
    ) -> Manifest:
        place = _place(manifest)
        self._called("rehearse" if dry_run else "apply", place[0], place[2])
        old = self.objects.get(place)
        if uid is not None and (old is None or old["metadata"]["uid"] != uid):
            raise ConflictError("the object is another one", status=409)
        if place in self.foreign and not force:
            raise ConflictError("conflict with another manager", status=409)
        if dry_run:
            return copy.deepcopy(dict(manifest))
        answer = self._store(place, manifest)
        self.alter(answer)
        return copy.deepcopy(answer)

    async def overwrite(self, manifest: Manifest) -> None:
        place = _place(manifest)
        self._called("overwrite", place[0], place[2])
        self._store(place, {**self._existing(place), "spec": manifest["spec"]})

    async def replace_status(
        self, kind: str, namespace: str, name: str, uid: str, status: Manifest
    ) -> Manifest:
        self._called("status", kind, name)
        body = self._existing((kind, namespace, name))
        if body["metadata"]["uid"] != uid:
            raise InvalidError("the test of the UID failed", status=422)
        written = {**body, "status": dict(status)}
        self.alter(written)
        return copy.deepcopy(self._store((kind, namespace, name), written))

    async def delete(
        self, kind: str, namespace: str, name: str, *, uid: str, grace_period_s: int | None = None
    ) -> Manifest | None:
        self._called("delete", kind, name)
        if self._existing((kind, namespace, name))["metadata"]["uid"] != uid:
            raise ConflictError("another UID", status=409)
        del self.objects[kind, namespace, name]
        return None

    async def create(self, manifest: Manifest) -> Manifest:
        place = _place(manifest)
        self._called("create", place[0], place[2])
        if place in self.objects:
            raise AlreadyExistsError("exists", status=409)
        return copy.deepcopy(self._store(place, manifest))

    async def replace(self, manifest: Manifest) -> Manifest:
        place = _place(manifest)
        self._called("replace", place[0], place[2])
        if self._existing(place)["metadata"]["resourceVersion"] != manifest["metadata"]["resourceVersion"]:
            raise ConflictError("the object has been modified", status=409)
        return copy.deepcopy(self._store(place, manifest))

    async def server_version(self) -> str:
        self._called("get", "version", "")
        return "v1.36.3"

    async def served_kinds(self, group: str, version: str) -> frozenset[str]:
        self._called("get", "discovery", group)
        return self.served

    async def schema_address(self, group: str, version: str) -> str:
        return self.schema_at

    async def schema(self, address: str, group: str, version: str, kind: str) -> Manifest:
        return self.schemas[address]

    def writes(self) -> Sequence[tuple[str, str, str]]:
        """The calls that change something."""
        return [call for call in self.calls if call[0] not in {"get", "find", "list"}]

    def _called(self, verb: str, kind: str, name: str) -> None:
        self.calls.append((verb, kind, name))
        error = self.fail(verb, kind, name)
        if error is not None:
            raise error

    def _existing(self, place: Place) -> dict[str, Any]:
        if place not in self.objects:
            raise NotFoundError(f"{place[0]} {place[2]} not found", status=404)
        return self.objects[place]

    def _store(self, place: Place, body: Manifest) -> dict[str, Any]:
        version = next(self._versions)
        old = self.objects.get(place, {})
        kept = copy.deepcopy(dict(body))
        if "status" in old and "status" not in kept:
            kept["status"] = old["status"]
        kept["metadata"] = {
            **kept["metadata"],
            "uid": old.get("metadata", {}).get("uid") or kept["metadata"].get("uid") or f"uid-{version}",
            "resourceVersion": str(version),
        }
        self.objects[place] = kept
        return kept


def _place(body: Manifest) -> Place:
    return kind_of(body), body["metadata"]["namespace"], body["metadata"]["name"]
