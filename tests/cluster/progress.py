"""Lines that show a long set-up is alive: what it does, and for how long."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

LINE_EVERY_S = 15.0


class Progress:
    """Says steps with the time since the start, on the error stream."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """One line."""
        seconds = int(time.monotonic() - self._started)
        print(f"{self._title}: {seconds // 60}:{seconds % 60:02d}  {text}", file=sys.stderr, flush=True)

    def run(
        self,
        command: Sequence[str | Path],
        what: str,
        *,
        log: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        detail: Callable[[], str] = lambda: "",
    ) -> int:
        """Run a command, its output in a file, a line now and then; its exit code, -1 after a time-out.

        ``detail`` says how far it is, where that can be told.
        """
        self.say(what)
        ends = time.monotonic() + timeout_s
        next_line = time.monotonic() + LINE_EVERY_S
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=env, cwd=cwd)
            try:
                while process.poll() is None:
                    time.sleep(0.1)
                    if time.monotonic() > ends:
                        return -1
                    if time.monotonic() > next_line:
                        next_line += LINE_EVERY_S
                        self.say(f"... {what}  {detail()}".rstrip())
                return process.returncode
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()


def last_lines(log: Path, count: int = 15) -> str:
    """The end of what a command has said, for the error that it makes."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
