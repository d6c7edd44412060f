"""Start to end of a container: checks, engine, watches, and the last words.

The exit code is the engine's own, but never 0 unless the pod was told to stop: vLLM ends with 0 also when its
workers have died, and a container that "completed" looks like a success to everything that reads exit codes.
Only of a download, which has a folder to fill, 0 is the good end that it says.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from shardwright_operator.launcher import preflight, process, reasons
from shardwright_operator.launcher.last_words import Output, leave, message
from shardwright_operator.launcher.options import parse
from shardwright_operator.launcher.peers import Group, LeaderWatch, WorkerWatch
from shardwright_operator.launcher.preflight import say
from shardwright_operator.launcher.progress import ProgressServer, bytes_in
from shardwright_operator.launcher.reasons import LauncherError
from shardwright_operator.launcher.stall import StallWatch
from shardwright_operator.launcher.start import Start, answers, patience_s

EXIT_FAILURE = 1
EXIT_CHECK = 78
"""A check failed, and no engine was started (EX_CONFIG of sysexits.h)."""
EXIT_WATCH = 70
"""A watch ended the engine (EX_SOFTWARE of sysexits.h)."""
TICK_S = 0.25
GIB = 1024**3
MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")


def main(arguments: Sequence[str]) -> int:
    """Run; the container's exit code."""
    options, command = parse(arguments)
    environment = dict(os.environ)
    process.hold_signals()
    output = Output()
    try:
        stopped = _interruptible(lambda: check(options, environment))
        if stopped:
            return 128 + stopped
        engine = process.Engine(command, environment, output)
    except LauncherError as error:
        say(f"{error.reason}: {error.text}")
        leave(options.termination_log, message(error.reason, error.text, output, environment))
        return reasons.EXIT_INPUT if error.reason == reasons.ACCESS_DENIED else EXIT_CHECK
    start = Start(command, port=options.port, members=options.members, within_s=options.start_within)
    return _Run(options, engine, start, output, environment).to_the_end()


def check(options: Namespace, environment: dict[str, str]) -> None:
    """All checks; adds what the engine is to know to its environment. Raises LauncherError."""
    skipped = preflight.skipped(environment)
    for name in sorted(skipped):
        say(f"skipped {name}: {preflight.SKIP} says so")
    preflight.check_token(environment)
    if options.gpus is not None and "gpus" not in skipped:
        preflight.check_gpus(options.gpus)
    if options.shared_memory is not None and "shm" not in skipped:
        preflight.check_shared_memory(options.shared_memory)
    if options.memory is not None and "memory" not in skipped:
        preflight.check_memory(options.memory)
    if options.members > 1:
        if "address" not in skipped:
            preflight.check_own_address(environment)
        # Rank 0 has a probe, by which the kubelet would end it before it has said why.
        within_s = options.start_within if options.port is None else patience_s(options.start_within)
        address = preflight.await_name(options.leader, within_s=within_s)
        if options.resolve_interface and "interface" not in skipped:
            found = preflight.resolved_interface(address)
            environment.setdefault(preflight.NCCL_INTERFACE, f"={found}")
            environment.setdefault(preflight.GLOO_INTERFACE, found)
            # An interface may have addresses of both kinds, and each rank would choose for itself.
            environment.setdefault(preflight.NCCL_FAMILY, "AF_INET6" if ":" in address else "AF_INET")
            say(f"the leader is at {address}, reached over {found}")
        if "interface" not in skipped:
            preflight.check_interfaces(environment)


def _interruptible(work: Callable[[], None]) -> int:
    """Do the checks in a thread, so that a stop signal ends even a patient one; that signal, or 0."""
    failure: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failure.append(error)
        done.set()

    threading.Thread(target=run, daemon=True).start()
    while not done.is_set():
        number = process.next_signal(TICK_S / 5)
        if number in process.STOPPING:
            return number
    if failure:
        raise failure[0]
    return 0


class _Run:
    """An engine that was started, until its end."""

    def __init__(
        self,
        options: Namespace,
        engine: process.Engine,
        start: Start,
        output: Output,
        environment: dict[str, str],
    ) -> None:
        self._options = options
        self._engine = engine
        self._start = start
        self._output = output
        self._environment = environment
        self._killed_before = _memory_kills()
        self._verdict: LauncherError | None = None
        self._stopped_by = 0
        self._deadline = float("inf")
        self._watches: list[StallWatch | LeaderWatch | WorkerWatch] = []
        self._group: LeaderWatch | WorkerWatch | None = None
        self._start_watches()

    def to_the_end(self) -> int:
        """Pass signals on until the engine has ended, by itself or by us; the container's exit code."""
        code = None
        while code is None:
            number = process.next_signal(TICK_S)
            self._start.look()
            if number in process.STOPPING:
                self._stop(number)
            if self._verdict is not None and self._deadline == float("inf"):
                say(f"{self._verdict.reason}: {self._verdict.text}; ending the engine")
                self._end_within(signal.SIGTERM, self._options.stop_within)
            if time.monotonic() > self._deadline:
                say("the engine does not end by itself: ending it by force")
                self._engine.kill_all()
                self._deadline = float("inf") if self._verdict is None else time.monotonic() + 1
            code = self._engine.reap()
        for watch in self._watches:
            if watch is not self._group:
                watch.close()
        self._engine.kill_all()
        self._engine.reap()
        self._engine.finish_output()
        return self._said_goodbye(code)

    def _start_watches(self) -> None:
        options = self._options
        skipped = preflight.skipped(self._environment)
        if options.members > 1 and "peers" not in skipped:
            group = Group(
                rank=options.rank,
                members=options.members,
                port=options.peer_port,
                own_address=self._environment.get(preflight.OWN_ADDRESS, ""),
                leader=options.leader,
                timeout_s=options.peer_timeout,
                drain_s=options.drain_within,
            )
            try:
                self._group = (LeaderWatch if options.rank == 0 else WorkerWatch)(group, self._judge)
                self._watches.append(self._group)
            except OSError as error:
                say(f"peers are not watched: port {options.peer_port}: {error}")
        if options.folder is not None and options.progress_port is not None:
            try:
                ProgressServer(Path(options.folder), options.progress_port)
            except OSError as error:
                say(f"progress is not told: port {options.progress_port}: {error}")
        if options.port is not None and "stall" not in skipped:
            self._watches.append(StallWatch(options.port, options.stall_timeout, self._judge))

    def _judge(self, error: LauncherError) -> None:
        if self._verdict is None and not self._stopped_by:
            self._verdict = error

    def _stop(self, number: int) -> None:
        serving = self._options.port is not None and answers(self._options.port)
        within_s = self._options.drain_within if serving else self._options.stop_within
        if not self._stopped_by:
            self._verdict = self._verdict or self._start.overdue(self._output, self._missing())
            self._stopped_by = number
            if self._group is not None:
                self._group.tell("stopping")
            say(f"{signal.Signals(number).name}: the engine has {within_s:g} s to end")
        self._end_within(number, within_s)

    def _end_within(self, number: int, within_s: float) -> None:
        self._deadline = min(self._deadline, time.monotonic() + within_s)
        self._engine.signal(number)

    def _said_goodbye(self, code: int) -> int:
        """Leave the last words, tell the others, and choose the exit code."""
        done = code == 0 and self._options.folder is not None
        if (self._stopped_by or done) and self._verdict is None:
            return 128 - code if code < 0 else code
        verdict = self._verdict or self._cause(code)
        if self._options.folder is not None and (there := bytes_in(Path(self._options.folder))):
            verdict = LauncherError(verdict.reason, f"{verdict.text}; {there / GIB:.1f} GiB are there by now")
        say(f"{verdict.reason}: {verdict.text}")
        leave(
            self._options.termination_log,
            message(verdict.reason, verdict.text, self._output, self._environment),
        )
        if self._group is not None:
            self._group.tell(f"bye {verdict.reason} {verdict.text[:200]}")
            self._group.close()
        if self._verdict is not None:
            return EXIT_WATCH
        if verdict.reason in {reasons.MODEL_NOT_FOUND, reasons.ACCESS_DENIED}:
            return reasons.EXIT_INPUT
        return 128 - code if code < 0 else code or EXIT_FAILURE

    def _missing(self) -> list[int]:
        return self._group.missing() if isinstance(self._group, LeaderWatch) else []

    def _cause(self, code: int) -> LauncherError:
        """Why the engine ended by itself."""
        how = (
            f"the engine was killed by signal {-code}"
            if code < 0
            else f"the engine ended with exit code {code}"
        )
        if _memory_kills() > self._killed_before:
            return LauncherError(
                reasons.OUT_OF_MEMORY, f"{how}; the kernel killed a process for want of memory"
            )
        reason, line = self._output.cause()
        missing = self._missing()
        if missing and reason in {reasons.RENDEZVOUS_TIMEOUT, reasons.UNKNOWN}:
            how += f"; never heard from rank {', '.join(map(str, missing))}"
        return LauncherError(reason, f"{how}: {line}" if line else how)


def _memory_kills() -> int:
    """How often the kernel has killed in this container for want of memory."""
    try:
        lines = dict(line.split() for line in MEMORY_EVENTS.read_text().splitlines())
        return int(lines.get("oom_kill", 0))
    except (OSError, ValueError):
        return 0
