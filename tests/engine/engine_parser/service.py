"""The part that runs in the tests: keeps one vLLM process, asks it, and survives what goes wrong there."""

import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from engine_environment import Environment

INSIDE = Path(__file__).resolve().parent / "inside.py"
START_TIMEOUT_S = 400.0
ANSWER_TIMEOUT_S = 300.0
"""The first question about an architecture imports its model class: seconds, minutes on a busy machine."""


class ParserError(RuntimeError):
    """The process ended or hung on a question; the next question gets a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What vLLM says to one command line: the facts of its configuration, or why it refuses.

    ``rank_bytes`` are the parameters of a rank of each stage that was asked for; ``where`` is the place in
    vLLM that refused.
    """

    facts: Mapping[str, Any]
    refusal: str | None
    where: str
    rank_bytes: tuple[int, ...]
    seconds: float

    @property
    def accepted(self) -> bool:
        """Whether there is a configuration."""
        return self.refusal is None


class ParserService:
    """A context manager around the process, which starts with the first question."""

    def __init__(
        self, environment: Environment, *, log: Path, answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self._environment = environment
        self._log = log
        self._timeout_s = answer_timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(
        self,
        words: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        stages: Sequence[int] = (),
        tensor_rank: int = 0,
    ) -> Answer:
        """What vLLM makes of the words after ``vllm serve``.

        With ``stages``, the layers of one rank of each of these pipeline stages are made as well.

        Raises:
            ParserError: there was no answer.
        """
        question: dict[str, Any] = {"words": list(words), "env": dict(env or {})}
        if stages:
            question |= {"stages": list(stages), "tensorRank": tensor_rank}
        answer = self.exchange(question)
        return Answer(
            facts=answer.get("facts", {}),
            refusal=answer.get("refusal"),
            where=answer.get("where", ""),
            rank_bytes=tuple(answer.get("rankBytes", ())),
            seconds=answer["seconds"],
        )

    def exchange(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """One line out, one line in.

        Raises:
            ParserError: there was no answer.
        """
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        except OSError as error:
            raise self._failed(f"cannot be written to: {error}", question) from error
        return self._read(self._timeout_s, question)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        self._lines = queue.SimpleQueue()
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [self._environment.python, INSIDE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment.variables(),
                cwd=self._log.parent,
            )
        self._process = process
        self.starts += 1
        threading.Thread(target=_pump, args=(process, self._lines), daemon=True).start()
        self._read(START_TIMEOUT_S, "the start")
        return process

    def _read(self, timeout_s: float, question: object) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise self._failed(f"gave no answer for {timeout_s:g} s", question) from None
        if line is None:
            raise self._failed("ended", question)
        found: dict[str, Any] = json.loads(line)
        return found

    def _failed(self, what: str, question: object) -> ParserError:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-12:])
        return ParserError(f"vLLM's parser {what}; question: {question}\n{tail}")


def _pump(process: subprocess.Popen[str], lines: "queue.SimpleQueue[str | None]") -> None:
    if process.stdout is not None:
        with contextlib.suppress(ValueError):  # closed while reading
            for line in process.stdout:
                lines.put(line)
    lines.put(None)
