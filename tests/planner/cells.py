"""Cells of a published table: numbers as people write them, and why a cell says nothing usable."""

import math
import re
from collections.abc import Mapping

Row = Mapping[str, str]
LARGEST_DEGREE = 4096


class Unscored(Exception):  # noqa: N818  not an error: the row lacks something
    """A row that cannot be scored, with the column that is missing or says nothing usable, and why."""

    def __init__(self, column: str, reason: str = "nothing usable stands there") -> None:
        super().__init__(f"{column}: {reason}")
        self.column = column
        self.reason = reason


def said(text: str, why: str) -> str:
    """A cell with what is wrong with it."""
    stated = text.strip()
    return f"{stated[:60]!r} {why}" if stated else "nothing stands there"


def number(text: str) -> float | None:
    """The first number of a cell; None where there is none, or none that is finite."""
    # The first number of a cell: "8192 (default)", "1,277,184", "57.752 (GB as logged)"; "nan" is none.
    found = re.match(r"\s*([-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][-+]?\d+)?)", text)
    try:
        value = float(found.group(1).replace(",", "")) if found else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def whole(text: str) -> int | None:
    """The same as a whole number of 1 or more."""
    value = number(text)
    return int(value) if value is not None and value >= 1 else None


def positive(row: Row, column: str) -> float:
    """A number above zero.

    Raises:
        Unscored: if there is none.
    """
    value = number(row.get(column, ""))
    if value is None or value <= 0:
        raise Unscored(column, said(row.get(column, ""), "is no number above zero"))
    return value


def degree(row: Row, column: str, default: int | None) -> int:
    """A parallel size; ``default`` where the cell is empty or 0.

    Raises:
        Unscored: for anything else.
    """
    text = row.get(column, "")
    value = number(text)
    if not value and default is not None:  # a dense model's expert parallelism is 0 in some files
        return default
    if value is None or value != int(value) or not 1 <= value <= LARGEST_DEGREE:
        raise Unscored(column, said(text, f"is no whole number from 1 to {LARGEST_DEGREE}"))
    return int(value)
