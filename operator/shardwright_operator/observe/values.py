"""Single values of an object's JSON, which may be missing or odd and must then not raise."""

from datetime import UTC, datetime
from sys import intern
from typing import Any

LONG_AGO = datetime.fromtimestamp(0, UTC)
"""Of what has no time."""

LONG_TEXT = 64
"""Texts of so many characters say something of one object alone."""


def integer(value: object) -> int | None:
    """A whole number, also one that stands as a text; None for everything else."""
    try:
        return int(str(value))
    except ValueError:
        return None


def moment(value: object) -> datetime | None:
    """A time in RFC 3339; None for everything else."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def thrifty(value: Any) -> Any:
    """The same JSON with its keys and short texts held once for all objects: half of the memory of many."""
    if isinstance(value, dict):
        return {intern(name): thrifty(part) for name, part in value.items()}
    if isinstance(value, list):
        return [thrifty(part) for part in value]
    return intern(value) if isinstance(value, str) and len(value) < LONG_TEXT else value
