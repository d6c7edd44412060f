"""The watch's record of a namespace's pods, to judge a sequence that polling would miss.

A pod that lives for a tenth of a second is enough for an old leader and a new worker to join, so what counts
is every event in its order and not what stands at the end.
"""

import http.client
import json
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from control_plane.client import Client, Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One watch event of a pod."""

    change: str
    """ADDED, MODIFIED or DELETED."""
    name: str
    uid: str


class PodTrace:
    """Context manager: watches the pods of a namespace from entry to exit."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._thread = threading.Thread(target=self._watch, name="pod trace", daemon=True)
        self._connection: http.client.HTTPSConnection | None = None
        self._socket: socket.socket | None = None
        self.events: list[Seen] = []

    def __enter__(self) -> Self:
        listed = self._client.request("GET", self._path)
        self.events += [_seen("ADDED", item) for item in listed["items"]]
        credentials = self._client.credentials
        self._connection = http.client.HTTPSConnection(
            credentials.host, credentials.port, context=credentials.ssl_context(), timeout=600
        )
        version = listed["metadata"]["resourceVersion"]
        headers = {"Authorization": f"Bearer {credentials.token}"} if credentials.token else {}
        self._connection.request("GET", f"{self._path}?watch=1&resourceVersion={version}", headers=headers)
        self._socket = self._connection.sock
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._connection is not None
        if self._socket is not None:
            # Closing alone would not wake the thread that reads.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._connection.close()

    def generations(self) -> list[list[str]]:
        """Pods by the times between which none existed: each a list of ``name uid`` in order of creation."""
        found: list[list[str]] = []
        alive: set[str] = set()
        for event in self.events:
            if event.change == "ADDED":
                if not alive:
                    found.append([])
                alive.add(event.uid)
                found[-1].append(f"{event.name} {event.uid}")
            elif event.change == "DELETED":
                alive.discard(event.uid)
        return found

    def companions(self, uids: Iterable[str]) -> set[str]:
        """UIDs of all pods that existed at the same time as any of these, themselves left out."""
        wanted = set(uids)
        alive: set[str] = set()
        met: set[str] = set()
        for event in self.events:
            if event.change == "DELETED":
                alive.discard(event.uid)
            else:
                alive.add(event.uid)
            if alive & wanted:
                met |= alive - wanted
        return met

    def _watch(self) -> None:
        assert self._connection is not None
        try:
            for line in self._connection.getresponse():
                event = json.loads(line)
                self.events.append(_seen(event["type"], event["object"]))
        except (OSError, ValueError, http.client.HTTPException):
            # The way in which a watch ends that nobody needs any more; what was missed fails the test itself.
            return


def _seen(change: str, pod: Json) -> Seen:
    return Seen(change=change, name=pod["metadata"]["name"], uid=pod["metadata"]["uid"])
