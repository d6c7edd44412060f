"""The lines that the launchers of a group say to each other: plain text, so that tcpdump and a person can
read it.

A worker begins with ``hello RANK MEMBERS INCARNATION ADDRESS`` and gets ``welcome INCARNATION`` or ``refuse
TEXT``. Then both sides say ``beat`` every few seconds, ``stopping`` when they were told to stop, and ``bye
REASON TEXT`` when their engine has ended. An incarnation is one start of a container: ranks of different
starts do not form a group, whatever their engines believe.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

LONGEST_LINE = 1024


class TalkError(OSError):
    """The other side said something that is no line of ours."""


@dataclass(frozen=True)
class Hello:
    """How a worker introduces itself."""

    rank: int
    members: int
    incarnation: str
    address: str

    def line(self) -> str:
        """As it is sent."""
        return f"hello {self.rank} {self.members} {self.incarnation} {self.address or '-'}"

    @classmethod
    def of(cls, line: str) -> Hello:
        """The inverse.

        Raises:
            TalkError: it is something else; whoever reaches the port may say anything.
        """
        words = line.split()
        if len(words) != 5 or words[0] != "hello" or not (words[1].isdecimal() and words[2].isdecimal()):
            raise TalkError(f"no hello: {line[:80]!r}")
        return cls(
            rank=int(words[1]), members=int(words[2]), incarnation=words[3], address=words[4].strip("-")
        )


class Line:
    """A connection between two launchers, one line at a time."""

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        """``timeout_s`` bounds each wait for a line and each sending of one."""
        connection.settimeout(timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._rest = b""

    def say(self, line: str) -> None:
        """Send a line; raises OSError."""
        self._connection.sendall(line.replace("\n", " ")[: LONGEST_LINE - 1].encode() + b"\n")

    def hear(self) -> str:
        """The next line; raises OSError (TimeoutError when none comes, TalkError at the end of the talk)."""
        while b"\n" not in self._rest:
            chunk = self._connection.recv(LONGEST_LINE)
            if not chunk:
                raise TalkError("the connection was closed")
            self._rest += chunk
            if len(self._rest) > 4 * LONGEST_LINE:
                raise TalkError("a line without an end")
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace")

    def close(self) -> None:
        """End the talk; a thread that waits in ``hear`` gets its error."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
