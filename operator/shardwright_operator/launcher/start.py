"""Is the engine up within the time that a start may take, and how far did it get if not?

The kubelet stops a container whose start-up probe fails for too long by the same signal as one that is no
longer wanted, and says no word in the container's state about which of the two it was. Only the clock tells
them apart.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from shardwright_operator.launcher import reasons
from shardwright_operator.launcher.last_words import Output
from shardwright_operator.launcher.reasons import LauncherError

PROBE_PERIOD_S = 10.0
"""Of the start-up probe: the kubelet begins to count at any point of the first one."""
LOOK_PERIOD_S = 1.0
RENDEZVOUS_PORTS = ("--master-port", "--data-parallel-rpc-port")
"""Words before a port at which rank 0 waits for the others (vLLM listens there only while it does)."""
_ITS_OWN_WORDS = frozenset({reasons.OUT_OF_MEMORY, reasons.GPU_LOST, reasons.RENDEZVOUS_TIMEOUT})
"""What an engine may say and then wait for ever. Other causes end it, and may be read into mere warnings."""


class Start:
    """The way of rank 0's engine to its API; of other ranks, which have none, it never says anything."""

    def __init__(self, command: Sequence[str], *, port: int | None, members: int, within_s: float) -> None:
        self._port = port
        self._members = members
        self._within_s = within_s
        self._rendezvous_ports = [
            int(value)
            for word, value in itertools.pairwise(command)
            if word in RENDEZVOUS_PORTS and value.isdecimal()
        ]
        self._looked_at = float("-inf")
        self._served = False

    def look(self) -> None:
        """See whether the API has opened, every now and then until it has."""
        now = time.monotonic()
        if self._port is not None and not self._served and now - self._looked_at >= LOOK_PERIOD_S:
            self._looked_at = now
            self._served = answers(self._port)

    def overdue(self, output: Output, missing: Sequence[int]) -> LauncherError | None:
        """Why the engine of a container that is stopped now is late; None when it is not."""
        if self._port is None or self._served or age_s() < patience_s(self._within_s):
            return None
        how = f"the engine is not ready within {self._within_s:g} s"
        reason, line = output.cause()
        if reason in _ITS_OWN_WORDS:
            return LauncherError(reason, f"{how}: {line}")
        if missing:
            ranks = ", ".join(map(str, missing))
            return LauncherError(reasons.RENDEZVOUS_TIMEOUT, f"{how}; never heard from rank {ranks}")
        waiting = next((port for port in self._rendezvous_ports if answers(port)), None)
        if self._members > 1 and not output.joined and waiting is not None:
            return LauncherError(
                reasons.RENDEZVOUS_TIMEOUT,
                f"{how}: rank 0 waits at port {waiting}, which the engines of the other ranks do not reach, "
                "though their launchers reach this one",
            )
        return LauncherError(
            reasons.STARTUP_TIMEOUT, f"{how}; if it was getting on, raise spec.recovery.startupTimeout"
        )


def patience_s(within_s: float) -> float:
    """Time after which the kubelet may stop a container that has this long to start."""
    return max(0.0, within_s - PROBE_PERIOD_S)


def age_s(stat: Path = Path("/proc/self/stat")) -> float:
    """Seconds since this process was started, which is when its container was; 0 where that is not told."""
    try:
        # The name of the program may hold anything, blanks and brackets too.
        ticks = int(stat.read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def answers(port: int) -> bool:
    """Whether somebody listens. At the API's port vLLM does only once the engine is ready."""
    try:
        socket.create_connection(("localhost", port), timeout=0.5).close()
    except OSError:
        return False
    return True
