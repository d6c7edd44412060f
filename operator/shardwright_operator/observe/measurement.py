"""What a running engine said about itself, as far as a plan can be held against it.

Values under load move all the time; a status that moved with them would be written once a minute for ever. So
they are rounded to two digits, and a new measurement replaces the standing one only when it says something
else.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

_FIXED = (
    "kvCacheBlocks",
    "kvBlockTokens",
    "kvCacheTokens",
    "maxModelLength",
    "chatTemplate",
    "startupSeconds",
)

MATERIAL = 0.15
"""Relative difference of a value under load from which on it is news."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Means over the last minutes in which there were enough requests."""

    requests: int
    running: float
    input_tokens: float
    time_per_output_token_ms: float | None
    time_to_first_token_ms: float | None
    preemptions: int

    def differs(self, other: "Load") -> bool:
        """Whether any value is news against the other's."""
        pairs = (
            (self.running, other.running),
            (self.input_tokens, other.input_tokens),
            (self.time_per_output_token_ms, other.time_per_output_token_ms),
            (self.time_to_first_token_ms, other.time_to_first_token_ms),
        )
        return bool(self.preemptions) != bool(other.preemptions) or any(_differ(a, b) for a, b in pairs)

    def to_wire(self) -> dict[str, Any]:
        """As it stands in ``status.measured.load``."""
        wire = {
            "requests": int(rounded(self.requests, 1)),
            "running": rounded(self.running),
            "inputTokens": rounded(self.input_tokens),
            "timePerOutputTokenMs": _maybe_rounded(self.time_per_output_token_ms),
            "timeToFirstTokenMs": _maybe_rounded(self.time_to_first_token_ms),
            "preemptions": int(rounded(self.preemptions, 1)),
        }
        return {name: value for name, value in wire.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One engine's answer: the group that was asked, what was fixed at its start, and its load."""

    group: int
    pod_uid: str
    pods_hash: str
    """Of the templates that the group runs, to tell whose plan it is to be held against."""
    kv_cache_blocks: int | None = None
    kv_block_tokens: int | None = None
    kv_cache_tokens: int | None = None
    max_model_length: int | None = None
    chat_template: bool | None = None
    """Whether it takes chat requests; None when it did not say."""
    startup_s: int | None = None
    load: Load | None = None

    def differs(self, other: "Measurement") -> bool:
        """Whether it is news against a standing one."""
        if replace(self, load=None) != replace(other, load=None):
            return True
        if self.load is None or other.load is None:
            return self.load is not other.load
        return self.load.differs(other.load)

    def is_news(self, standing: Mapping[str, Any]) -> bool:
        """Whether it is news against ``status.measured`` as it stands."""
        wire = self.to_wire()
        names = {"group", *_FIXED}
        if {n: wire.get(n) for n in names} != {n: standing.get(n) for n in names}:
            return True
        if self.load is None:
            # Too few requests at the moment: what was measured under load is still the latest.
            return False
        shown = load_of(standing)
        return shown is None or self.load.differs(shown)

    def to_wire(self) -> dict[str, Any]:
        """As it stands in ``status.measured``."""
        wire = {
            "group": self.group,
            "kvCacheBlocks": self.kv_cache_blocks,
            "kvBlockTokens": self.kv_block_tokens,
            "kvCacheTokens": self.kv_cache_tokens,
            "maxModelLength": self.max_model_length,
            "chatTemplate": self.chat_template,
            "startupSeconds": self.startup_s,
            "load": None if self.load is None else self.load.to_wire(),
        }
        return {name: value for name, value in wire.items() if value is not None}


def load_of(measured: Mapping[str, Any]) -> Load | None:
    """The load in ``status.measured``; None before there was enough of it."""
    wire = measured.get("load")
    if not isinstance(wire, Mapping):
        return None
    return Load(
        requests=wire.get("requests", 0),
        running=wire.get("running", 0.0),
        input_tokens=wire.get("inputTokens", 0.0),
        time_per_output_token_ms=wire.get("timePerOutputTokenMs"),
        time_to_first_token_ms=wire.get("timeToFirstTokenMs"),
        preemptions=wire.get("preemptions", 0),
    )


def rounded(value: float, digits: int = 2) -> float:
    """The value to so many significant digits."""
    if value == 0 or not math.isfinite(value):
        return 0.0
    return float(f"{value:.{digits}g}")


def _maybe_rounded(value: float | None) -> float | None:
    return None if value is None else rounded(value)


def _differ(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is not other
    return abs(one - other) > MATERIAL * max(abs(one), abs(other))
