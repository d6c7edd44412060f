"""Child processes that never outlive their purpose.

Five servers run per control plane. They must be gone after a test run, also when it was killed, and a cluster
that was kept must be stoppable by another process later. So each child is remembered by pid and start time
(a pid alone may have been reused), asks the kernel to be killed with its parent unless it is to be kept, and
has its output in a file whose end is shown when it does not come up.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

# Runs between fork and exec of a child, as a program of its own: `preexec_fn` is unsafe in a process with
# threads. The parent may die before prctl is reached, hence the second look at the parent's pid.
_LAUNCHER = """\
import ctypes, os, signal, sys
parent, program = int(sys.argv[1]), sys.argv[2:]
if parent:
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
os.execv(program[0], program)
"""

LOG_TAIL_LINES = 20
LOG_LINE_LENGTH = 600
"""kwok prints a failed template with thousands of escaped zero bytes after it."""


class StartError(RuntimeError):
    """A server did not become ready; the message holds the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A running child: enough to find it again from another process, and nothing of its parent."""

    name: str
    pid: int
    started: int
    """Clock ticks between boot and the process's start, field 22 of /proc/PID/stat."""
    log: Path

    def is_running(self) -> bool:
        """Tell whether this very process is there; a zombie and another process of the same pid are not."""
        stat = _stat(self.pid)
        return stat is not None and stat.started == self.started and stat.state not in {"Z", "X"}

    def log_tail(self) -> str:
        """Last lines of the child's output."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return "(no log)"
        return "\n".join(line[:LOG_LINE_LENGTH] for line in lines[-LOG_TAIL_LINES:])

    def as_json(self) -> dict[str, str | int]:
        """Record for a state file."""
        return {"name": self.name, "pid": self.pid, "started": self.started, "log": str(self.log)}

    @classmethod
    def from_json(cls, record: Mapping[str, str | int]) -> Self:
        """Read back what ``as_json`` gave."""
        return cls(
            name=str(record["name"]),
            pid=int(record["pid"]),
            started=int(record["started"]),
            log=Path(str(record["log"])),
        )


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    started: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command's name stands in parentheses and may hold spaces and parentheses itself.
    fields = text.rpartition(")")[2].split()
    return _Stat(state=fields[0], started=int(fields[19]))


def this_process() -> Process:
    """Record of the running Python process, to tell later whether the owner of a folder still lives."""
    stat = _stat(os.getpid())
    return Process(name="owner", pid=os.getpid(), started=stat.started if stat else 0, log=Path(os.devnull))


def start_process(
    name: str, command: Sequence[str | Path], *, log: Path, keep: bool, env: Mapping[str, str] | None = None
) -> Process:
    """Start a server in a session of its own; with ``keep`` it survives this process.

    The kernel kills an unkept child when the *thread* that started it ends, so start it from a thread that
    lives as long as the cluster shall.
    """
    parent = 0 if keep else os.getpid()
    launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(parent)]
    with log.open("ab") as output:
        child = subprocess.Popen(
            [*launcher, *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=None if env is None else dict(env),
        )
    stat = _stat(child.pid)
    _children[child.pid] = child
    return Process(name=name, pid=child.pid, started=stat.started if stat else 0, log=log)


# Popen objects of this process's own children: they must be waited for, or they stay as zombies.
_children: dict[int, subprocess.Popen[bytes]] = {}


def wait_until_ready(process: Process, probe: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
    """Poll ``probe`` until it is true. Raises StartError when the process ends or the time is up."""
    deadline = time.monotonic() + timeout_s
    while not probe():
        if not process.is_running():
            raise StartError(f"{process.name} ended while starting; its log says:\n{process.log_tail()}")
        if time.monotonic() > deadline:
            tail = process.log_tail()
            raise StartError(f"{process.name} was not ready after {timeout_s:.0f} s; its log says:\n{tail}")
        time.sleep(0.02)


def stop_processes(processes: Sequence[Process], *, patience_s: float = 0.5) -> None:
    """Ask all to end, wait, then kill the rest; returns when none of them runs any more.

    The API server may stay for up to a minute after SIGTERM as long as watches are open. Nothing of a test
    cluster is worth that wait, hence the short patience.
    """
    _signal_all(processes, signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and any(process.is_running() for process in processes):
        time.sleep(0.02)
    _signal_all(processes, signal.SIGKILL)
    while any(process.is_running() for process in processes):
        time.sleep(0.01)
    for process in processes:
        child = _children.pop(process.pid, None)
        if child is not None:
            child.wait()


def release_processes(processes: Sequence[Process]) -> None:
    """Forget children that are to be kept, so that this process may end without waiting for them."""
    for process in processes:
        child = _children.pop(process.pid, None)
        if child is not None:
            # Without a return code Popen warns on deletion that its child still runs, which here it shall.
            child.returncode = 0


def _signal_all(processes: Sequence[Process], number: signal.Signals) -> None:
    for process in processes:
        if process.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
