"""Keeps one operator running, as a Deployment would, and ends it in all the ways in which one ends.

Each process can be told to die by SIGKILL in the place of a write to come, which no kill from outside can aim
at. One that is frozen there (SIGSTOP) does not know that another has taken its Lease when it wakes up in the
middle of what it was doing: a virtual machine that was moved, or a node that ran out of memory.
"""

import math
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import dying_operator

STOP_S = 30.0
MOST_WRITES = 8
LEASE = {"lease-duration": "4", "lease-renew-deadline": "3", "lease-retry": "0.5"}
START_S = 12.0
"""What a new process may take until it has the Lease of one that was killed, and has listed everything."""


@dataclass(slots=True, kw_only=True)
class Life:
    """One process of the operator."""

    process: "subprocess.Popen[bytes]"
    log: Path
    began: float
    writes: int
    """So many it makes after it was told to die."""
    is_told: bool = False
    ended: float | None = None
    end: str = ""

    @property
    def is_over(self) -> bool:
        return self.ended is not None

    def is_frozen(self) -> bool:
        """Whether SIGSTOP has stopped it."""
        try:
            return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        except OSError:
            return False


@dataclass(slots=True, kw_only=True)
class OperatorKeeper:
    """The operator's processes, one after another; not for use from several threads."""

    kubeconfig: Path
    folder: Path
    lease: Mapping[str, str]
    rng: random.Random
    lives: list[Life] = field(default_factory=list)
    down_until: float = 0.0
    _freezing: Life | None = None
    """The process that was told to stop at a write."""
    _frozen_s: float = 0.0
    _thaws_at: float = math.inf

    @property
    def running(self) -> list[Life]:
        return [life for life in self.lives if not life.is_over]

    @property
    def acting(self) -> Life | None:
        """The newest process that runs and is not frozen."""
        frozen = self._freezing if self._thaws_at < math.inf else None
        return next((life for life in reversed(self.running) if life is not frozen), None)

    def tend(self) -> None:
        """Bury those that have ended, wake one whose time has come, and start one if none is there."""
        now = time.time()
        for life in self.running:
            code = life.process.poll()
            if code is not None:
                life.ended, life.end = now, life.end or f"ended with {code}"
        freezing = self._freezing
        if freezing is not None and self._thaws_at == math.inf and freezing.is_frozen():
            self._thaws_at = now + self._frozen_s
        if freezing is not None and (now >= self._thaws_at or freezing.is_over):
            self._thaw()
        if self.acting is None and now >= self.down_until:
            self.start()

    def start(self) -> None:
        """Start another process."""
        writes = self.rng.randint(0, MOST_WRITES)
        values = {
            "kubeconfig": str(self.kubeconfig),
            "lease-name": self.lease["lease_name"],
            "lease-namespace": self.lease["lease_namespace"],
            "health-host": "127.0.0.1",
            "health-port": "0",
            "metrics-port": "0",
            "measure-interval": "0",
            "check-image": "shardwright:1",
            "log-level": "debug",
            **LEASE,
        }
        arguments = [word for name, value in values.items() for word in (f"--{name}", value)]
        log = self.folder / f"operator-{len(self.lives):03}.log"
        program = [sys.executable, dying_operator.__file__, str(writes), "--on-signal"]
        with log.open("wb") as output:
            process = subprocess.Popen([*program, *arguments], stdout=output, stderr=subprocess.STDOUT)
        self.lives.append(Life(process=process, log=log, began=time.time(), writes=writes))

    def die_at_a_write(self, down_s: float) -> str:
        """Let the operator die in the place of a write to come."""
        life = self.acting
        if life is None:
            return "no operator runs"
        life.process.send_signal(signal.SIGUSR1)
        life.is_told = True
        self.down_until = time.time() + down_s
        return f"process {life.process.pid} is to die after {life.writes} writes"

    def kill(self, down_s: float) -> str:
        return self._end(signal.SIGKILL, down_s)

    def stop(self, down_s: float) -> str:
        return self._end(signal.SIGTERM, down_s)

    def freeze_at_a_write(self, for_s: float) -> str:
        """Let the operator stop in the place of a write to come, for so long; another starts beside it."""
        life = self.acting
        if life is None or self._freezing is not None:
            return "no operator to freeze"
        life.process.send_signal(signal.SIGHUP)
        life.is_told = True
        self._freezing, self._frozen_s = life, for_s
        return f"process {life.process.pid} is to stop after {life.writes} writes, for {for_s:.1f} s"

    def calm(self) -> None:
        """Nobody dies any more, nobody is frozen, and one runs."""
        self._thaw()
        for life in self.running:
            if life.is_told:
                life.process.send_signal(signal.SIGUSR2)
        self.down_until = 0.0
        self.tend()

    def end(self) -> None:
        """Kill all that still run."""
        for life in self.running:
            life.process.kill()
            life.process.wait(STOP_S)
            life.ended, life.end = time.time(), life.end or "the storm is over"

    def outages(self) -> list[tuple[float, float]]:
        """Times from the end of an operator until the next may be expected to work."""
        ends = [life.ended for life in self.lives if life.ended is not None]
        begins = [(life.began, life.began + START_S) for life in self.lives]
        return [*begins, *((end, end + START_S) for end in ends)]

    def _end(self, number: signal.Signals, down_s: float) -> str:
        life = self.acting
        if life is None:
            return "no operator runs"
        life.end = number.name
        life.process.send_signal(number)
        self.down_until = time.time() + down_s
        return f"process {life.process.pid} gets {number.name}, the next comes {down_s:.1f} s later"

    def _thaw(self) -> None:
        life, self._freezing, self._thaws_at = self._freezing, None, math.inf
        if life is not None and not life.is_over:
            life.process.send_signal(signal.SIGCONT)
