"""The server that tells how much of a download is there, under askers who never finish their question."""

import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardwright_operator.launcher.progress import MOST_AT_ONCE, REQUEST_TIMEOUT_S, ProgressServer

DAWDLERS = 5 * MOST_AT_ONCE


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProgressServer]:
    (tmp_path / "weights").write_bytes(b"w" * 8192)
    server = ProgressServer(tmp_path, 0)
    yield server
    server.close()


def asked(server: ProgressServer) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def test_those_who_dawdle_hold_few_threads_and_keep_nobody_out(server: ProgressServer) -> None:
    # Each slow asker held a thread of the download's pod for as long as it sent a byte every five seconds.
    before = threading.active_count()
    dawdlers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(DAWDLERS)]
    for dawdler in dawdlers:
        dawdler.sendall(b"GET /")

    assert asked(server) == "shardwright_download_bytes 8192\n"
    # Long before the server gives any of them up by itself.
    deadline = time.monotonic() + REQUEST_TIMEOUT_S / 2
    while threading.active_count() - before > MOST_AT_ONCE:
        assert time.monotonic() < deadline, f"{threading.active_count() - before} threads"
        time.sleep(0.01)
    assert asked(server) == "shardwright_download_bytes 8192\n"
    for dawdler in dawdlers:
        dawdler.close()


def test_askers_that_were_answered_are_forgotten(server: ProgressServer) -> None:
    assert {asked(server) for _ in range(3 * MOST_AT_ONCE)} == {"shardwright_download_bytes 8192\n"}
