"""The requests that the operator makes, and no others: the chart's rights follow from this list."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some of the objects of a LIST, and the resource version that all of it is made at."""

    items: tuple[Manifest, ...]
    version: int


class Cluster(Protocol):
    """A Kubernetes API server. Every method may raise a ``ClusterError``."""

    async def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """The live object."""
        ...

    async def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """The live object, or None. But for pods it needs no right beyond those of the watches."""
        ...

    def list(self, kind: str, namespace: str | None) -> AsyncIterator[Page]:
        """All objects of a kind that carry our label (all, for kinds without one); None: all namespaces.

        Those of a kind that is ``metadata_only`` have no more than that. At least one page comes, which may
        be empty.
        """
        ...

    async def apply(
        self, manifest: Manifest, *, force: bool, uid: str | None = None, dry_run: bool = False
    ) -> Manifest:
        """Server-side apply of a complete manifest as the operator's field manager; the answer as it stands.

        Without ``force`` a field that another manager holds is a ``ConflictError``; with a
        ``uid`` so is an object that is not that one, or is gone: it is not made anew. With ``dry_run``
        the server answers as it would, and keeps nothing.
        """
        ...

    async def overwrite(self, manifest: Manifest) -> None:
        """Put the manifest's spec over the live one by a merge patch: lists in it are replaced whole."""
        ...

    async def replace_status(
        self, kind: str, namespace: str, name: str, uid: str, status: Manifest
    ) -> Manifest:
        """Put ``status`` in the place of the whole status of the object with this UID."""
        ...

    async def delete(
        self, kind: str, namespace: str, name: str, *, uid: str, grace_period_s: int | None = None
    ) -> Manifest | None:
        """Delete the object with this UID; the object if it goes gracefully, None if it is gone."""
        ...

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object; ``AlreadyExistsError`` if the name is taken."""
        ...

    async def replace(self, manifest: Manifest) -> Manifest:
        """Replace an object at the version in its metadata."""
        ...

    async def server_version(self) -> str:
        """Version of the API server, such as ``v1.36.3``."""
        ...

    async def served_kinds(self, group: str, version: str) -> frozenset[str]:
        """Kinds that a group and version serve; empty when there is no such group."""
        ...

    async def schema_address(self, group: str, version: str) -> str:
        """Where the schemas of a group and version are published; changes with them. Empty: nowhere yet."""
        ...

    async def schema(self, address: str, group: str, version: str, kind: str) -> Manifest:
        """The schema of a kind as it is published there; empty when it is not among them."""
        ...
