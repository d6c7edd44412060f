"""How much of a download is there, for whoever asks over HTTP: one number in Prometheus' text format.

The operator asks as it asks engines for their metrics. A pod that wrote its progress into an object itself
would need an account with rights at the API server, and its log is for people only.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

METRIC = "shardwright_download_bytes"
FRESH_S = 5.0
"""A look through the folder costs its file system a question for every file; answers are kept this long."""
REQUEST_TIMEOUT_S = 5.0
MOST_AT_ONCE = 8
"""Askers at a time, each of whom has a thread. The operator is one of them, once a minute; beyond that the
one who has been at it for longest gives way, so that nobody who dawdles keeps a later one out."""


class ProgressServer:
    """Answers every GET with the bytes of a folder, for as long as the process lives."""

    def __init__(self, folder: Path, port: int) -> None:
        """Listen on a port; 0 takes any. Raises OSError."""
        self._size = _Size(folder)
        self._server = _Server(("", port), _handler(self._size.now))
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


def bytes_in(folder: Path) -> int:
    """Bytes of all files in a folder, of unfinished ones what has been written of them."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                found = (Path(root) / name).lstat()
            except OSError:
                continue
            total += min(found.st_size, found.st_blocks * 512)
    return total


class _Size:
    """The size of a folder as it was a moment ago."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._bytes = 0

    def now(self) -> int:
        with self._lock:
            if time.monotonic() - self._looked_at > FRESH_S:
                self._bytes = bytes_in(self._folder)
                self._looked_at = time.monotonic()
            return self._bytes


class _Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        with self._lock:
            self._open.append(request)
            longest = self._open.pop(0) if len(self._open) > MOST_AT_ONCE else None
        if longest is not None:
            # Its thread, which waits for it, finds an end and is done.
            with contextlib.suppress(OSError):
                longest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        with self._lock:
            if request in self._open:
                self._open.remove(request)
        super().shutdown_request(request)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Not the base's own: it asks DNS for the host's name, which takes its time.
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "", self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: who did not wait for the answer has no need of it, and the log is the download's."""


def _handler(size: Callable[[], int]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            body = f"{METRIC} {size()}\n".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Say nothing: the log is the download's."""

    return Handler
