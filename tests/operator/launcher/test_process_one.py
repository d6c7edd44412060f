"""The launcher as process 1 of a PID namespace, which is what it is in a container."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.fixture(scope="module", autouse=True)
def may_unshare() -> None:
    done = subprocess.run([*UNSHARE, "true"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("PID namespaces cannot be made here")


@pytest.fixture
def contained(mounted: Path, tmp_path: Path) -> Iterator[Any]:
    """Start an engine under the launcher in a PID namespace; returns unshare's process and the log."""
    started = []

    def start(engine: str, *options: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = tmp_path / "log"
        command = [sys.executable, str(mounted / "launcher.py"), "--termination-log", str(tmp_path / "words")]
        with log.open("w") as out:
            process = subprocess.Popen(
                [*UNSHARE, *command, *options, "--", sys.executable, "-u", "-c", engine],
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        started.append(process)
        return process, log

    yield start
    for process in started:
        process.kill()
        process.wait()


def await_text(log: Path, text: str) -> str:
    deadline = time.monotonic() + 20
    while text not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    return log.read_text()


def pid_of_one(unshare: subprocess.Popen[bytes]) -> int:
    """Process 1 as it is known outside."""
    children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
    return int(children[0])


def test_stop_signal_reaches_an_engine_that_has_no_handler_yet(contained: Any) -> None:
    """As process 1 itself, an engine that still imports would not even notice the signal."""
    process, log = contained("import time; print('importing'); time.sleep(60)", "--stop-within", "20")
    await_text(log, "importing")
    before = time.monotonic()
    signal.pidfd_send_signal(_pidfd(pid_of_one(process)), signal.SIGTERM)

    assert process.wait(10) == 128 + signal.SIGTERM
    assert time.monotonic() - before < 5


def test_orphans_are_reaped_and_the_rest_is_ended(contained: Any) -> None:
    engine = """
import os, subprocess, sys, time
# A grandchild whose parent goes, and one in a session of its own that outlives its parent.
subprocess.run([sys.executable, "-c", "import subprocess; subprocess.Popen(['sleep', '0.2'])"])
leaves = "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)"
subprocess.run([sys.executable, "-c", leaves])
def states():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0])
        except OSError:
            pass
    return found
deadline = time.monotonic() + 15
while (len(states()), states().count("Z")) != (3, 0) and time.monotonic() < deadline:
    time.sleep(0.1)
states = states()
print("zombies", states.count("Z"), "all", len(states))
print("Worker proc VllmWorker-1 died unexpectedly")
"""
    process, log = contained(engine)
    # What is printed comes piece by piece: the line is whole when the next one is there.
    said = await_text(log, "died unexpectedly")

    assert "zombies 0 all 3" in said, "the launcher, the engine and one sleeper"
    assert process.wait(10) == 1, "exit code 0 of an engine that nobody stopped is a failure"
    assert "PeerLost" in log.read_text()


def _pidfd(pid: int) -> int:
    return os.pidfd_open(pid)
