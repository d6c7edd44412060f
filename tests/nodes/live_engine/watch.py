"""What the API server tells of the objects of a namespace, as it happens."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from control_plane.client import ApiError, Client, Json

LIST_TIMEOUT_S = 120.0
AGAIN_S = 0.1


@dataclass(slots=True, kw_only=True)
class _Watch:
    """A list and the changes after it, over and over: the server ends each watch now and then."""

    api: Client
    path: str
    listed: Callable[[Sequence[Json]], None]
    changed: Callable[[str, Json], None]
    has_listed: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    open: socket.socket | None = None

    def run(self) -> None:
        while not self.done.is_set():
            # What is missed between two watches is in the list that begins the second.
            with contextlib.suppress(ApiError, OSError, ValueError, http.client.HTTPException):
                self._once()
            self.done.wait(AGAIN_S)

    def stop(self) -> None:
        self.done.set()
        if self.open is not None:
            with contextlib.suppress(OSError):
                self.open.shutdown(socket.SHUT_RDWR)

    def _once(self) -> None:
        answer = self.api.request("GET", self.path)
        self.listed(answer["items"])
        self.has_listed.set()
        credentials = self.api.credentials
        connection = http.client.HTTPSConnection(
            credentials.host, credentials.port, context=credentials.ssl_context()
        )
        headers = {"Authorization": f"Bearer {credentials.token}"} if credentials.token else {}
        version = answer["metadata"]["resourceVersion"]
        with contextlib.closing(connection):
            connection.request("GET", f"{self.path}?watch=1&resourceVersion={version}", headers=headers)
            self.open = connection.sock
            if self.done.is_set():
                return
            for line in connection.getresponse():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                self.changed(event["type"], event["object"])


@contextlib.contextmanager
def watched(
    api: Client,
    path: str,
    listed: Callable[[Sequence[Json]], None],
    changed: Callable[[str, Json], None],
) -> Iterator[None]:
    """While the block runs, every change at a path is handed over in a thread of its own, in order.

    The block begins after the first list.
    """
    watch = _Watch(api=api, path=path, listed=listed, changed=changed)
    thread = threading.Thread(target=watch.run, name=f"watch of {path}", daemon=True)
    thread.start()
    try:
        if not watch.has_listed.wait(LIST_TIMEOUT_S):
            raise TimeoutError(f"no list of {path} within {LIST_TIMEOUT_S:g} s")
        yield
    finally:
        watch.stop()
        thread.join(LIST_TIMEOUT_S)
