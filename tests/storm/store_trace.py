"""A witness of its own: watches etcd itself, so that it sees each write of everybody, once and in order.

A watch of the API server would end with it, and a new one is refused as too old when anything has been
written meanwhile, as its cache begins anew. etcd lives through the whole storm. The objects in it are JSON
when the API server runs with ``STORED_AS_JSON``.
"""

import base64
import http.client
import json
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sights import Deployment, Sight, thing_of

STORED_AS_JSON = "--storage-media-type=application/json"

ROOT = "/registry/"
KINDS: Mapping[str, str] = {
    "pods": "Pod",
    "statefulsets": "StatefulSet",
    "controllerrevisions": "ControllerRevision",
    "services/specs": "Service",
    "configmaps": "ConfigMap",
    "networkpolicies": "NetworkPolicy",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "shardwright.dev/modeldeployments": "ModelDeployment",
    "minions": "Node",
}
"""What is of interest, by the beginning of its keys."""

END_S = 10.0


class StoreTrace:
    """Context manager: writes sights to a file and keeps them, from the cluster's beginning to the exit."""

    def __init__(self, etcd_port: int, path: Path) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", etcd_port)
        self._socket: socket.socket | None = None
        self._path = path
        self._lock = threading.Lock()
        self._sights: list[Sight] = []
        self._ending = False
        self._thread = threading.Thread(target=self._follow, name="trace", daemon=True)
        self.failure = ""
        """Why the trace ended before its time."""

    def __enter__(self) -> Self:
        key, end = (base64.b64encode(text.encode()).decode() for text in (ROOT, ROOT[:-1] + "0"))
        watch = {"key": key, "range_end": end, "start_revision": "1", "prev_kv": True}
        self._connection.request("POST", "/v3/watch", body=json.dumps({"create_request": watch}))
        self._socket = self._connection.sock
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = True
        if self._socket is not None:
            # Closing alone would not wake the thread that reads.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(END_S)
        self._connection.close()

    def sights(self) -> list[Sight]:
        """All so far, in the order in which things happened."""
        with self._lock:
            return list(self._sights)

    def _follow(self) -> None:
        try:
            with self._connection.getresponse() as answer, self._path.open("w") as file:
                for line in answer:
                    result = json.loads(line)["result"]
                    for event in result.get("events", ()):
                        self._take(event, file)
        except (OSError, ValueError, KeyError, AttributeError, http.client.HTTPException) as error:
            self._broke(repr(error))
        else:
            self._broke("etcd ended the watch")

    def _broke(self, why: str) -> None:
        if not self._ending:
            self.failure = f"the trace broke: {why}"

    def _take(self, event: Mapping[str, Any], file: Any) -> None:
        gone = event.get("type") == "DELETE"
        kind = _kind(base64.b64decode(event["kv"]["key"]).decode().removeprefix(ROOT))
        if kind is None:
            return
        body = json.loads(base64.b64decode((event["prev_kv"] if gone else event["kv"])["value"]))
        thing = thing_of({**body, "kind": kind})
        if thing is None:
            return
        sight = Sight(at=time.time(), version=int(event["kv"]["mod_revision"]), thing=thing, gone=gone)
        record = sight.as_json()
        if isinstance(thing, Deployment):
            record["body"] = {name: body.get(name) for name in ("spec", "status")}
        file.write(json.dumps(record) + "\n")
        with self._lock:
            self._sights.append(sight)


def _kind(key: str) -> str | None:
    return next((kind for prefix, kind in KINDS.items() if key.startswith(f"{prefix}/")), None)
