"""The container's termination message: what the operator and ``kubectl describe`` show of a dead engine.

The kubelet keeps 4 KiB of it and the operator 2 KiB, so that it holds one line that says all, the first lines
that look like an error, and the last ones. Secrets that the environment carries are taken out of it; the log
itself is passed on as it is.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from shardwright_operator.launcher import reasons
from shardwright_operator.launcher.causes import cause_of, looks_like_an_error, telling_line, tells_of_joining

MESSAGE_BYTES = 2000
HEAD_LINES = 12
TAIL_LINES = 60
LINE_CHARACTERS = 400
FIRST_LINE_CHARACTERS = 500

_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|API_?KEY|CREDENTIAL", re.IGNORECASE)
_SECRET_VALUE = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,})|(?<=Bearer )\S{8,}|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
)
_SHORTEST_SECRET = 6


class Output:
    """What the engine said, as far as it is needed for last words."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.joined = False
        """Whether it has said that all ranks of its group have found each other."""

    def add(self, line: str) -> None:
        """Take in a line of the engine's output."""
        # A progress bar writes over its line; what it came to counts.
        line = line.rstrip().rpartition("\r")[2][:LINE_CHARACTERS]
        if not line:
            return
        self.joined = self.joined or tells_of_joining(line)
        if len(self._head) < HEAD_LINES and (self._head or looks_like_an_error(line)):
            self._head.append(line)
        else:
            self._tail.append(line)

    @property
    def head(self) -> str:
        """Lines from the first that looks like an error on."""
        return "\n".join(self._head)

    @property
    def tail(self) -> str:
        """The last lines."""
        return "\n".join(self._tail)

    def cause(self) -> tuple[str, str]:
        """Reason of the end as the output tells it, and the line that tells it (may be empty)."""
        for part in (self.head, self.tail):
            reason = cause_of(part)
            if reason != reasons.UNKNOWN:
                return reason, telling_line(part, reason) or ""
        last = next((line for line in reversed([*self._head, *self._tail]) if looks_like_an_error(line)), "")
        return reasons.UNKNOWN, last


def message(reason: str, text: str, output: Output, environment: Mapping[str, str]) -> str:
    """The termination message: ``shardwright: Reason: text``, then head and tail of the output."""
    first = f"shardwright: {reason}: {' '.join(text.split())}"[:FIRST_LINE_CHARACTERS]
    parts = [first]
    room = MESSAGE_BYTES - len(first.encode()) - 60
    head = _cut(output.head, room // 2, keep_end=False)
    tail = _cut(output.tail, room - len(head.encode()), keep_end=True)
    if head:
        parts += ["--- first error", head]
    if tail:
        parts += ["--- last lines", tail]
    return redacted("\n".join(parts), environment)


def redacted(text: str, environment: Mapping[str, str]) -> str:
    """The text without values of variables that look like secrets, and without what looks like a token."""
    values = {v for k, v in environment.items() if _SECRET_NAME.search(k) and len(v) >= _SHORTEST_SECRET}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "[secret]")
    return _SECRET_VALUE.sub("[secret]", text)


def leave(path: str, words: str) -> None:
    """Write the message where the kubelet looks for it; without such a file (outside of a pod) it is lost."""
    try:
        with Path(path).open("w", encoding="utf-8") as file:
            file.write(words + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        # They stand in the log as well, and what matters now is that the container ends.
        pass


def _cut(text: str, room: int, *, keep_end: bool) -> str:
    raw = text.encode()
    if len(raw) <= room:
        return text
    kept = raw[-room:] if keep_end else raw[: max(0, room)]
    return kept.decode(errors="ignore")
