"""A broken promise, with what proves it."""

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One rule that did not hold at one moment."""

    rule: str
    about: str
    """A group, a resource or an object."""
    at: float
    """Seconds since the epoch."""
    evidence: tuple[str, ...]

    def __str__(self) -> str:
        lines = "".join(f"\n    {line}" for line in self.evidence)
        return f"{clock(self.at)} {self.rule}: {self.about}{lines}"


def clock(at: float) -> str:
    """Time of day to the millisecond, as audit logs have it."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]
