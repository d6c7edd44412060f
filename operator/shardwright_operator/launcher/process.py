"""The engine as a child process: its output passed on and kept in part, its signals, and its end.

The launcher is process 1 of the container. So it takes in every orphan, and it decides when the container
ends: an engine that waits for its peers ignores SIGTERM for as long as one lets it (15 s and more on vLLM
0.32).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from shardwright_operator.launcher import reasons
from shardwright_operator.launcher.last_words import Output
from shardwright_operator.launcher.reasons import LauncherError

SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
OUTPUT_PATIENCE_S = 1.0
"""For the last output after the end: a child that was left behind may hold the pipe open for ever."""
CHUNK_BYTES = 65_536
LONGEST_LINE_BYTES = 8192


class Engine:
    """A running engine and all that it has started."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], output: Output) -> None:
        """Start it.

        Raises:
            LauncherError: there is no such program in the image.
        """
        readers, writers = zip(*(os.pipe() for _ in range(2)), strict=True)
        actions = [
            (os.POSIX_SPAWN_DUP2, writer, place) for writer, place in zip(writers, (1, 2), strict=True)
        ]
        try:
            self.pid = os.posix_spawnp(
                command[0],
                list(command),
                dict(environment),
                file_actions=actions,
                setpgroup=0,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )
        except OSError as error:
            raise LauncherError(
                reasons.CONFIG_REJECTED, f"{command[0]} cannot be started: {error.strerror or error}"
            ) from error
        for writer in writers:
            os.close(writer)
        self._threads = [
            threading.Thread(target=_pass_on, args=(reader, place, output), daemon=True)
            for reader, place in zip(readers, (1, 2), strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def reap(self) -> int | None:
        """Collect all children that have ended; the engine's exit code if it is among them, else None.

        A death by signal n is -n.
        """
        ended = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            if pid == self.pid:
                ended = os.waitstatus_to_exitcode(status)

    def signal(self, number: int) -> None:
        """Pass a signal on to the engine's main process, which tells its own."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill_all(self) -> None:
        """End everything that the engine has started."""
        with suppress(ProcessLookupError, PermissionError):
            if os.getpid() == 1:
                os.kill(-1, signal.SIGKILL)
            else:
                os.killpg(self.pid, signal.SIGKILL)

    def finish_output(self) -> None:
        """Wait a moment for output that is still under way."""
        for thread in self._threads:
            thread.join(OUTPUT_PATIENCE_S)


def hold_signals() -> None:
    """Keep signals for ``next_signal``, in this thread and those to come. Also process 1 gets them then."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def next_signal(within_s: float) -> int | None:
    """The next signal that has come, or None after a while."""
    found = signal.sigtimedwait(SIGNALS, within_s)
    return None if found is None else found.si_signo


def _pass_on(reader: int, place: int, output: Output) -> None:
    """Copy a pipe to our own output, line by line into what is kept; ends when nobody holds the pipe."""
    rest, writable = b"", True
    while chunk := os.read(reader, CHUNK_BYTES):
        if writable:
            writable = _write(place, chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            output.add(line.decode(errors="replace"))
        if len(rest) > LONGEST_LINE_BYTES:
            rest = rest[-LONGEST_LINE_BYTES:]
    if rest:
        output.add(rest.decode(errors="replace"))


def _write(place: int, chunk: bytes) -> bool:
    """Whether the chunk could be written; a log that nobody takes any more must not stop the engine."""
    view = memoryview(chunk)
    try:
        while view:
            view = view[os.write(place, view) :]
    except OSError:
        return False
    return True
