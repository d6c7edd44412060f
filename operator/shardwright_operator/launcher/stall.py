"""Does the engine still make steps? Asked of its own metrics, since ``/health`` says yes of a hung one.

Requests that run while the count of steps stands still, for longer than any step takes, mean a stall. A busy
engine makes steps all the time, and one that is too busy to answer gives no evidence at all: only answers
count, and never their absence. An engine that hung while it was idle shows no running request, and is found
by its peers' launchers or by vLLM's own limit of one step.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Callable

from shardwright_operator.launcher import reasons
from shardwright_operator.launcher.preflight import say
from shardwright_operator.launcher.reasons import LauncherError

RUNNING = "vllm:num_requests_running"
STEPS = "vllm:iteration_tokens_total_count"
LARGEST_ANSWER_BYTES = 16 * 1024**2

_SAMPLE = re.compile(rb"^(vllm:[a-z_]+)\{([^}]*)\} ([0-9.eE+-]+)", re.MULTILINE)
_ENGINE = re.compile(rb'engine="([^"]*)"')


class StallClock:
    """How long each engine of this server (one per data-parallel rank) has made no step, with work to do."""

    def __init__(self) -> None:
        self._steps: dict[str, float] = {}
        self._since: dict[str, float] = {}

    def observe(self, found: dict[str, tuple[float, float]], now_s: float) -> tuple[str, float, float]:
        """Take in running requests and steps by engine; the longest stall: engine, seconds, its requests."""
        longest = ("", 0.0, 0.0)
        for engine, (running, steps) in found.items():
            if running <= 0 or self._steps.get(engine) != steps:
                self._steps[engine] = steps
                self._since[engine] = now_s
                continue
            stalled_s = now_s - self._since[engine]
            if stalled_s > longest[1]:
                longest = (engine, stalled_s, running)
        return longest


def engine_counts(text: bytes) -> dict[str, tuple[float, float]]:
    """Running requests and steps so far, by engine, of engines that tell both."""
    running: dict[str, float] = {}
    steps: dict[str, float] = {}
    for name, labels, value in _SAMPLE.findall(text):
        target = {RUNNING: running, STEPS: steps}.get(name.decode())
        if target is not None:
            engine = _ENGINE.search(labels)
            target[engine.group(1).decode() if engine else "0"] = float(value)
    return {engine: (running[engine], steps[engine]) for engine in running if engine in steps}


def read_metrics(port: int, timeout_s: float) -> bytes:
    """The server's own metrics; raises OSError or HTTPException when it does not answer in time."""
    connection = http.client.HTTPConnection("localhost", port, timeout=timeout_s)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise OSError(f"/metrics answers {answer.status}")
        return answer.read(LARGEST_ANSWER_BYTES)
    finally:
        connection.close()


class StallWatch:
    """Looks at the metrics every so often, for as long as the process lives."""

    def __init__(self, port: int, timeout_s: float, report: Callable[[LauncherError], None]) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._report = report
        self._stop = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """Watch no more."""
        self._stop.set()

    def _run(self) -> None:
        clock = StallClock()
        period_s = self._timeout_s / 8
        warned = False
        while not self._stop.wait(period_s):
            try:
                found = engine_counts(read_metrics(self._port, period_s))
            except (OSError, ValueError, http.client.HTTPException):
                continue
            engine, stalled_s, running = clock.observe(found, time.monotonic())
            text = f"engine {engine} made no step for {stalled_s:.0f} s with {running:.0f} requests running"
            if stalled_s > self._timeout_s and not self._stop.is_set():
                self._report(LauncherError(reasons.ENGINE_STALLED, text))
                return
            late = stalled_s > self._timeout_s / 2
            if late and not warned:
                say(text)
            warned = late
