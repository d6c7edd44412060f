"""Has a member of the group died? The launchers of a group keep a connection each to that of rank 0.

An engine does not notice: with a dead rank ``/health`` stays 200 and requests hang until a collective times
out (300 s by default on vLLM 0.32), and a worker whose leader is gone waits for ever. A node that loses
power says nothing at all, so silence counts. The launchers talk, not the engines: one that is merely busy
is not disturbed.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from shardwright_operator.launcher import reasons
from shardwright_operator.launcher.peer_lines import Hello, Line, TalkError
from shardwright_operator.launcher.preflight import say
from shardwright_operator.launcher.reasons import LauncherError

BEATS_PER_TIMEOUT = 8
LEAVE_S = 60.0
"""After a leader has said that it stops, its workers are told to stop too, within this time and its drain."""
BYE_PATIENCE_S = 2.0
"""Rank 0 ends a moment after the rank that broke the group, so that the operator sees the cause first."""

Report = Callable[[LauncherError], None]
"""Takes what has broken the group; only the first counts."""


@dataclass(frozen=True)
class Group:
    """Who this launcher is, and whom it talks to."""

    rank: int
    members: int
    port: int
    own_address: str = ""
    leader: str = ""
    timeout_s: float = 20.0
    drain_s: float = 35.0
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @property
    def beat_s(self) -> float:
        """Seconds between two signs of life."""
        return self.timeout_s / BEATS_PER_TIMEOUT


class _Peer:
    """A worker as rank 0 knows it."""

    def __init__(self, hello: Hello, line: Line) -> None:
        self.hello = hello
        self.line = line
        self.heard_at = time.monotonic()
        self.connected = True
        self.gone = False
        """It has said goodbye: its silence is no news."""


class LeaderWatch:
    """Rank 0's side: takes the workers' connections and reports the first that is lost."""

    def __init__(self, group: Group, report: Report) -> None:
        self._group = group
        self._report = report
        self._peers: dict[int, _Peer] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        self._server = socket.create_server(
            ("", group.port), family=family, dualstack_ipv6=family == socket.AF_INET6, backlog=group.members
        )
        self.port = self._server.getsockname()[1]
        for target in (self._accept, self._watch):
            threading.Thread(target=target, daemon=True).start()

    def missing(self) -> list[int]:
        """Ranks that never came."""
        with self._lock:
            return [rank for rank in range(1, self._group.members) if rank not in self._peers]

    def tell(self, line: str) -> None:
        """Say something to all workers."""
        with self._lock:
            lines = [peer.line for peer in self._peers.values() if peer.connected]
        for each in lines:
            try:
                each.say(line)
            except OSError:
                continue

    def close(self) -> None:
        """Watch no more."""
        self._stop.set()
        self._server.close()

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        line = Line(connection, self._group.timeout_s)
        try:
            hello = Hello.of(line.hear())
            refusal = self._admit(hello, line)
            if refusal is not None:
                say(f"refused a worker: {refusal}")
                line.say(f"refuse {refusal}")
                line.close()
                return
            line.say(f"welcome {self._group.incarnation}")
        except OSError:
            line.close()
            return
        self._listen(self._peers[hello.rank], line)

    def _admit(self, hello: Hello, line: Line) -> str | None:
        """Why this worker cannot belong to the group; None when it does."""
        group = self._group
        if hello.members != group.members or not 0 < hello.rank < group.members:
            return f"rank {hello.rank} of {hello.members} in a group of {group.members}"
        with self._lock:
            old = self._peers.get(hello.rank)
            if old is not None and old.hello.incarnation != hello.incarnation:
                text = f"rank {hello.rank} started anew or there are two of it"
                if not old.connected:
                    self._report(LauncherError(reasons.PEER_LOST, f"{text}; the group cannot go on"))
                return text
            taken = {p.hello.address for r, p in self._peers.items() if r != hello.rank} | {group.own_address}
            if hello.address and hello.address in taken:
                return f"rank {hello.rank} has the address {hello.address} of another rank"
            self._peers[hello.rank] = _Peer(hello, line)
        if old is None:
            say(f"rank {hello.rank} is there, from {hello.address or 'an unknown address'}")
        return None

    def _listen(self, peer: _Peer, line: Line) -> None:
        try:
            while True:
                said = line.hear()
                peer.heard_at = time.monotonic()
                if said.startswith("stopping"):
                    peer.gone = True
                    self._lost(peer, "was told to stop")
                elif said.startswith("bye"):
                    peer.gone = True
                    self._stop.wait(BYE_PATIENCE_S)
                    self._lost(peer, f"has ended: {said[4:]}")
        except OSError:
            peer.connected = False
            line.close()

    def _watch(self) -> None:
        group = self._group
        while not self._stop.wait(group.beat_s):
            self.tell("beat")
            with self._lock:
                peers = list(self._peers.values())
            now = time.monotonic()
            for peer in peers:
                # A closed connection is stronger evidence than silence, yet a network may drop one by itself.
                patience_s = group.timeout_s if peer.connected else group.timeout_s / 2
                if not peer.gone and now - peer.heard_at > patience_s:
                    self._lost(peer, f"is silent for {now - peer.heard_at:.0f} s")

    def _lost(self, peer: _Peer, how: str) -> None:
        if not self._stop.is_set():
            self._report(LauncherError(reasons.PEER_LOST, f"rank {peer.hello.rank} {how}"))


class WorkerWatch:
    """A worker's side: keeps a connection to rank 0 and reports its loss, once there was one."""

    def __init__(self, group: Group, report: Report) -> None:
        self._group = group
        self._report = report
        self._stop = threading.Event()
        self._line: Line | None = None
        self._leader = ""
        """Incarnation of the leader that this worker belongs to; empty before the first welcome."""
        self._leaving_until: float | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def tell(self, line: str) -> None:
        """Say something to rank 0."""
        current = self._line
        if current is not None:
            with contextlib.suppress(OSError):
                current.say(line)

    def close(self) -> None:
        """Watch no more."""
        self._stop.set()

    def _run(self) -> None:
        heard_at = time.monotonic()
        while not self._stop.is_set():
            try:
                self._talk()
            except LauncherError as error:
                self._fail(error)
                return
            except OSError as error:
                problem = error
            if self._line is not None:
                self._line, heard_at = None, time.monotonic()
            if self._leader and self._expired(heard_at):
                self._fail(
                    LauncherError(
                        reasons.PEER_LOST,
                        f"rank 0 cannot be reached for {time.monotonic() - heard_at:.0f} s: {problem}",
                    )
                )
                return
            self._stop.wait(min(1.0, self._group.beat_s))

    def _expired(self, heard_at: float) -> bool:
        now = time.monotonic()
        if self._leaving_until is not None:
            return now > self._leaving_until
        # The wait for a line has lasted a whole timeout already when a node went silent.
        return now - heard_at > self._group.timeout_s / 2

    def _talk(self) -> None:
        """One connection, from hello to its loss (OSError)."""
        group = self._group
        connection = socket.create_connection((group.leader, group.port), timeout=group.timeout_s / 2)
        line = Line(connection, group.timeout_s / 2)
        try:
            hello = Hello(group.rank, group.members, group.incarnation, group.own_address)
            line.say(hello.line())
            self._accepted(line.hear())
            self._line = line
            beating = threading.Thread(target=self._beat, args=(line,), daemon=True)
            beating.start()
            while True:
                self._take(line.hear())
        finally:
            line.close()

    def _accepted(self, answer: str) -> None:
        word, _, rest = answer.partition(" ")
        if word == "refuse":
            if self._leader:
                raise LauncherError(reasons.PEER_LOST, f"rank 0 refuses this rank: {rest}")
            # Perhaps the same rank of an older group, which is about to go.
            raise TalkError(f"refused: {rest}")
        if word != "welcome":
            raise TalkError(f"no welcome: {answer[:80]!r}")
        if self._leader and rest != self._leader:
            raise LauncherError(
                reasons.PEER_LOST, "rank 0 started anew; this rank belongs to the group before"
            )
        if not self._leader:
            say("rank 0 is there")
        self._leader = rest

    def _take(self, said: str) -> None:
        if said.startswith("stopping"):
            self._leaving_until = time.monotonic() + self._group.drain_s + LEAVE_S
        elif said.startswith("bye") and self._leaving_until is None:
            raise LauncherError(reasons.PEER_LOST, f"rank 0 has ended: {said[4:]}")

    def _beat(self, line: Line) -> None:
        while not self._stop.wait(self._group.beat_s) and self._line is line:
            try:
                line.say("beat")
            except OSError:
                return

    def _fail(self, error: LauncherError) -> None:
        if not self._stop.is_set():
            self._report(error)
