"""Free loopback ports for several control planes at once.

A port that was only looked up may be taken before its server listens, above all when two test runs start
together. So a port is held by a locked file until its server is up, and ports are taken from below Linux's
ephemeral range, where no outgoing connection lands by chance.
"""

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

LOWEST_PORT = 20000
HIGHEST_PORT = 32000
"""Linux gives outgoing connections ports from 32768 on (net.ipv4.ip_local_port_range)."""


class NoFreePortError(RuntimeError):
    """Every port of the range is held or in use."""


@contextmanager
def reserved_ports(count: int) -> Iterator[tuple[int, ...]]:
    """Hold ``count`` free ports of 127.0.0.1; nobody else who asks here gets them inside the block."""
    folder = Path(tempfile.gettempdir()) / f"shardwright-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as held:
        ports: list[int] = []
        candidates = random.SystemRandom().sample(range(LOWEST_PORT, HIGHEST_PORT), k=2000)
        for port in candidates:
            if len(ports) == count:
                break
            lock = _locked(folder / str(port))
            if lock is None:
                continue
            held.callback(os.close, lock)
            if _is_free(port):
                ports.append(port)
        if len(ports) < count:
            raise NoFreePortError(
                f"no {count} free ports of 127.0.0.1 between {LOWEST_PORT} and {HIGHEST_PORT}"
            )
        yield tuple(ports)


def _locked(path: Path) -> int | None:
    # The files stay: removing a lock file would let a third process lock a new file of the same name.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
