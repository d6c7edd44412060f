"""What a run has measured, as a table for people. Nothing in it decides whether a test passes."""

import math
from dataclasses import dataclass, fields

_HEADINGS = (
    "group",
    "ready in s",
    "tokens equal",
    "fault",
    "noticed after s",
    "old pods gone after s",
    "serves again after s",
    "cause that the operator gives",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A start without a fault, or a fault and what came of it."""

    group: str
    ready_s: float | None = None
    """From the creation of the resource to the first right answer."""
    tokens_equal: bool | None = None
    fault: str = ""
    noticed_s: float | None = None
    replaced_s: float | None = None
    serves_s: float | None = None
    cause: str = ""


def table(rows: list[Row]) -> list[str]:
    """The lines of the table, its columns as wide as they need."""
    cells = [_HEADINGS, *(tuple(_text(getattr(row, field.name)) for field in fields(Row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
    rule = "  ".join("-" * width for width in widths)
    return [lines[0], rule, *lines[1:]]


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.1f}" if math.isfinite(value) else "never"
    return str(value)
