"""The Cluster protocol on a real API server, through the official client's REST layer and plain dicts."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from shardwright_operator.api.constants import FIELD_MANAGER, STATUS_FIELD_MANAGER
from shardwright_operator.api.gang import kind_of
from shardwright_operator.cluster.errors import ConflictError, InvalidError, NotFoundError
from shardwright_operator.cluster.kinds import kind_named
from shardwright_operator.cluster.managed_fields import without_managed_fields
from shardwright_operator.cluster.protocol import Manifest, Page
from shardwright_operator.cluster.transport import JSON, Transport, whole

LIST_PAGE = 100
"""Objects of a page: a revision has some 25 kB of JSON, and many times that once it is read."""

_APPLY = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_KINDS_OF_SCHEMA = "x-kubernetes-group-version-kind"


class ApiCluster:
    """The API server behind one transport."""

    def __init__(self, transport: Transport) -> None:
        """It is the transport's owner, and closes it."""
        self._transport = transport
        self._request = transport.request

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """See Cluster."""
        return await self._request("get", kind, "GET", kind_named(kind).path(namespace, name))

    async def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """See Cluster. Asked without our label: a name may be held by an object that does not carry it."""
        described = kind_named(kind)
        if described.read_by_name:
            try:
                found = await self._request("get", kind, "GET", described.path(namespace, name))
            except NotFoundError:
                return None
            return _trimmed(found, described.plain_kind, described.api_version)
        # Even of one name a LIST waits until the API server's cache has caught up with everybody's writes: 50
        # ms where 20 objects a second are written, against 3 of a GET.
        query = {"fieldSelector": f"metadata.name={name}"}
        answer = await self._request("list", kind, "GET", described.path(namespace), query=query)
        items = answer.get("items") or ()
        return _trimmed(items[0], described.plain_kind, described.api_version) if items else None

    async def list(self, kind: str, namespace: str | None) -> AsyncIterator[Page]:
        """See Cluster."""
        described = kind_named(kind)
        query = {"limit": str(LIST_PAGE)}
        if described.selector:
            query["labelSelector"] = described.selector
        accept = _METADATA_LIST if described.metadata_only else JSON
        while True:
            answer = await self._request(
                "list",
                kind,
                "GET",
                described.path(namespace),
                query=query,
                accept=accept,
                cut=without_managed_fields if described.managed_fields_last else whole,
            )
            metadata = answer.get("metadata") or {}
            version = str(metadata.get("resourceVersion") or "0")
            yield Page(
                items=tuple(
                    _trimmed(item, described.plain_kind, described.api_version)
                    for item in answer.get("items") or ()
                ),
                version=int(version) if version.isdecimal() else 0,
            )
            if not metadata.get("continue"):
                return
            query = {**query, "continue": metadata["continue"]}

    async def apply(
        self, manifest: Manifest, *, force: bool, uid: str | None = None, dry_run: bool = False
    ) -> Manifest:
        """See Cluster."""
        metadata = manifest["metadata"]
        body = manifest
        if uid is not None:
            body = {**manifest, "metadata": {**metadata, "uid": uid}}
        try:
            return await self._request(
                "patch",
                kind_of(manifest),
                "PATCH",
                kind_named(kind_of(manifest)).path(metadata["namespace"], metadata["name"]),
                query={
                    "fieldManager": FIELD_MANAGER,
                    "force": "true" if force else "false",
                    **({"dryRun": "All"} if dry_run else {}),
                },
                body=body,
                content_type=_APPLY,
            )
        except InvalidError as error:
            if uid is not None and "metadata.uid" in error.message:
                # The server's word for "this is another object"; for one that is gone it says Conflict.
                raise ConflictError(error.message, status=error.status) from error
            raise

    async def overwrite(self, manifest: Manifest) -> None:
        """See Cluster."""
        metadata = manifest["metadata"]
        await self._request(
            "patch",
            kind_of(manifest),
            "PATCH",
            kind_named(kind_of(manifest)).path(metadata["namespace"], metadata["name"]),
            query={"fieldManager": FIELD_MANAGER},
            body={"spec": manifest["spec"]},
            content_type=_MERGE_PATCH,
        )

    async def replace_status(
        self, kind: str, namespace: str, name: str, uid: str, status: Manifest
    ) -> Manifest:
        """See Cluster.

        A JSON patch, because ``add`` puts a new value in the place of the old one whole: a server-side apply
        would leave fields of other writers standing, and each pass would then find a status that differs.
        The test of the UID keeps a late write off an object that was created anew under the name.
        """
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        return await self._request(
            "patch",
            f"{kind}/status",
            "PATCH",
            kind_named(kind).path(namespace, name, "status"),
            query={"fieldManager": STATUS_FIELD_MANAGER},
            body=patch,
            content_type=_JSON_PATCH,
        )

    async def delete(
        self, kind: str, namespace: str, name: str, *, uid: str, grace_period_s: int | None = None
    ) -> Manifest | None:
        """See Cluster."""
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        if grace_period_s is not None:
            body["gracePeriodSeconds"] = grace_period_s
        answer = await self._request(
            "delete", kind, "DELETE", kind_named(kind).path(namespace, name), body=body
        )
        return None if answer.get("kind") == "Status" else answer

    async def create(self, manifest: Manifest) -> Manifest:
        """See Cluster."""
        return await self._request(
            "create",
            manifest["kind"],
            "POST",
            kind_named(kind_of(manifest)).path(manifest["metadata"]["namespace"]),
            query={"fieldManager": FIELD_MANAGER},
            body=manifest,
        )

    async def replace(self, manifest: Manifest) -> Manifest:
        """See Cluster."""
        metadata = manifest["metadata"]
        return await self._request(
            "update",
            manifest["kind"],
            "PUT",
            kind_named(kind_of(manifest)).path(metadata["namespace"], metadata["name"]),
            query={"fieldManager": FIELD_MANAGER},
            body=manifest,
        )

    async def server_version(self) -> str:
        """See Cluster."""
        answer = await self._request("get", "version", "GET", "/version")
        return str(answer.get("gitVersion") or "")

    async def served_kinds(self, group: str, version: str) -> frozenset[str]:
        """See Cluster."""
        try:
            answer = await self._request("get", "discovery", "GET", f"/apis/{group}/{version}")
        except NotFoundError:
            return frozenset()
        return frozenset(str(resource.get("kind")) for resource in answer.get("resources") or ())

    async def schema_address(self, group: str, version: str) -> str:
        """See Cluster. Everybody who has logged in may ask; the address holds a hash of the content."""
        answer = await self._request("get", "openapi", "GET", "/openapi/v3")
        found = (answer.get("paths") or {}).get(f"apis/{group}/{version}") or {}
        return str(found.get("serverRelativeURL") or "")

    async def schema(self, address: str, group: str, version: str, kind: str) -> Manifest:
        """See Cluster."""
        answer = await self._request("get", "openapi", "GET", address)
        wanted = {"group": group, "version": version, "kind": kind}
        schemas: Mapping[str, Manifest] = (answer.get("components") or {}).get("schemas") or {}
        return next((s for s in schemas.values() if wanted in s.get(_KINDS_OF_SCHEMA, ())), {})


def _trimmed(item: dict[str, Any], kind: str, api_version: str) -> Manifest:
    """An item of a list with its kind, which lists leave out, less what takes most of its memory."""
    metadata = item.get("metadata") or {}
    metadata.pop("managedFields", None)
    if kind == "Node":
        (item.get("status") or {}).pop("images", None)
    # One that has its metadata only says that it were a PartialObjectMetadata.
    item["kind"] = kind
    item["apiVersion"] = api_version
    return item
