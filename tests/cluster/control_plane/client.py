"""A small synchronous client for tests: plain dicts in, plain dicts out.

The tests must not share code with the operator that they judge, and generated clients hide what was sent.
This one adds only what every request needs: paths found by discovery, JSON, and errors with their Status.
"""

import http.client
import json
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from control_plane.credentials import Credentials

Json = dict[str, Any]
"""A Kubernetes object."""

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
"""Server-side apply; JSON is YAML."""

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
"""Lists as tables."""

FIELD_MANAGER = "cluster-tests"


class ApiError(Exception):
    """The server refused a request. ``reason`` is that of its Status, for example ``NotFound``."""

    def __init__(self, status: int, reason: str, message: str, body: Json) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.body = body


@dataclass(frozen=True, slots=True)
class _Resource:
    """Where objects of one kind live."""

    base: str
    """``/api/v1`` or ``/apis/GROUP/VERSION``."""
    plural: str
    namespaced: bool

    def path(self, name: str | None, namespace: str | None, subresource: str | None = None) -> str:
        parts = [self.base]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", quote(namespace)]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)


class Client:
    """Requests to one API server as one identity. Safe to share between threads: each has its connection.

    Resources are named as kubectl names them: ``pods``, ``statefulsets.apps``,
    ``modeldeployments.shardwright.dev``. Every method raises ApiError when the server answers 400 or above.
    """

    def __init__(self, credentials: Credentials, *, timeout_s: float = 60.0) -> None:
        self.credentials = credentials
        self._timeout_s = timeout_s
        self._context = credentials.ssl_context()
        self._local = threading.local()
        self._connections: set[http.client.HTTPSConnection] = set()
        self._resources: dict[str, _Resource] = {}

    def get(self, resource: str, name: str, namespace: str | None = None) -> Json:
        return self.request("GET", self._named(resource).path(name, namespace))

    def find(self, resource: str, name: str, namespace: str | None = None) -> Json | None:
        """Like ``get``, with None for an object that is not there."""
        try:
            return self.get(resource, name, namespace)
        except ApiError as error:
            if error.status == http.client.NOT_FOUND:
                return None
            raise

    def table(self, resource: str, namespace: str | None = None) -> list[dict[str, Any]]:
        """Rows of what ``kubectl get`` would print, by column: far less than whole objects, for all sides."""
        path = self._named(resource).path(None, namespace)
        answer = self.request("GET", path, query={"includeObject": "None"}, accept=TABLE)
        columns = [column["name"] for column in answer["columnDefinitions"]]
        return [dict(zip(columns, row["cells"], strict=True)) for row in answer.get("rows") or ()]

    def list(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
    ) -> list[Json]:
        """List objects, of all namespaces when none is given; ``labels`` and ``fields`` are selectors."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        answer = self.request("GET", self._named(resource).path(None, namespace), query=query)
        return list(answer["items"])

    def create(self, manifest: Json, namespace: str | None = None, *, dry_run: bool = False) -> Json:
        resource = self._of(manifest)
        path = resource.path(None, namespace or manifest["metadata"].get("namespace"))
        query = {"fieldManager": FIELD_MANAGER, "dryRun": "All" if dry_run else None}
        return self.request("POST", path, body=manifest, query=query)

    def apply(self, manifest: Json, namespace: str | None = None, *, dry_run: bool = False) -> Json:
        """Server-side apply, taking over fields of other managers."""
        metadata = manifest["metadata"]
        path = self._of(manifest).path(metadata["name"], namespace or metadata.get("namespace"))
        query = {"fieldManager": FIELD_MANAGER, "force": "true", "dryRun": "All" if dry_run else None}
        return self.request("PATCH", path, body=manifest, query=query, content_type=APPLY)

    def replace(self, manifest: Json, *, subresource: str | None = None) -> Json:
        metadata = manifest["metadata"]
        path = self._of(manifest).path(metadata["name"], metadata.get("namespace"), subresource)
        return self.request("PUT", path, body=manifest)

    def patch(
        self,
        resource: str,
        name: str,
        body: object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        content_type: str = MERGE,
    ) -> Json:
        path = self._named(resource).path(name, namespace, subresource)
        query = {"fieldManager": FIELD_MANAGER}
        return self.request("PATCH", path, body=body, query=query, content_type=content_type)

    def annotate(
        self,
        resource: str,
        name: str,
        annotations: Mapping[str, str | None],
        namespace: str | None = None,
    ) -> Json:
        """Set annotations; None removes one."""
        return self.patch(resource, name, {"metadata": {"annotations": dict(annotations)}}, namespace)

    def delete(
        self,
        resource: str,
        name: str,
        namespace: str | None = None,
        *,
        grace_s: int | None = None,
        propagation: str | None = None,
    ) -> Json:
        """Delete; ``propagation`` is Background, Foreground or Orphan."""
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if propagation is not None:
            options["propagationPolicy"] = propagation
        return self.request("DELETE", self._named(resource).path(name, namespace), body=options)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str | None] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Json:
        """Send one request to an absolute path and decode the answer (``{}`` when it is not JSON)."""
        if query is not None:
            given = {key: value for key, value in query.items() if value is not None}
            path += f"?{urlencode(given)}" if given else ""
        headers = {"Accept": accept, "Content-Type": content_type}
        if self.credentials.token is not None:
            headers["Authorization"] = f"Bearer {self.credentials.token}"
        data = None if body is None else json.dumps(body).encode()
        status, raw = self._exchange(method, path, data, headers)
        try:
            answer = json.loads(raw) if raw else {}
        except ValueError:
            answer = {"message": raw.decode(errors="replace")}
        if status >= http.client.BAD_REQUEST:
            message = str(answer.get("message", ""))
            raise ApiError(status, str(answer.get("reason", "")), message, answer)
        return answer if isinstance(answer, dict) else {"items": answer}

    def close(self) -> None:
        """Close the connections of all threads; the next request opens a new one."""
        for connection in tuple(self._connections):
            # Closing is not the end of an HTTPSConnection: it opens again when it is used again.
            connection.close()

    def _exchange(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection = getattr(self._local, "connection", None)
        reused = connection is not None and connection.sock is not None
        try:
            return self._exchange_once(method, path, data, headers)
        except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError):
            # The server closes idle connections; a fresh one that is refused is a real failure.
            if not reused:
                raise
            return self._exchange_once(method, path, data, headers)

    def _exchange_once(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(
                self.credentials.host,
                self.credentials.port,
                context=self._context,
                timeout=self._timeout_s,
            )
            self._local.connection = connection
            self._connections.add(connection)
        try:
            connection.request(method, path, body=data, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except BaseException:
            # Half an answer may still be under way on it.
            connection.close()
            raise

    def _named(self, resource: str) -> _Resource:
        found = self._resources.get(resource)
        if found is None:
            plural, _, group = resource.partition(".")
            base = "/api/v1"
            if group:
                base = f"/apis/{self.request('GET', f'/apis/{group}')['preferredVersion']['groupVersion']}"
            found = self._discover(base, "name", plural)
            self._resources[resource] = found
        return found

    def _of(self, manifest: Json) -> _Resource:
        version, kind = manifest["apiVersion"], manifest["kind"]
        key = f"{version}/{kind}"
        found = self._resources.get(key)
        if found is None:
            base = f"/apis/{version}" if "/" in version else f"/api/{version}"
            found = self._discover(base, "kind", kind)
            self._resources[key] = found
        return found

    def _discover(self, base: str, key: str, value: str) -> _Resource:
        for entry in self.request("GET", base)["resources"]:
            if entry[key] == value and "/" not in entry["name"]:
                return _Resource(base, entry["name"], bool(entry["namespaced"]))
        raise ApiError(http.client.NOT_FOUND, "NotFound", f"the server has no {value} in {base}", {})
