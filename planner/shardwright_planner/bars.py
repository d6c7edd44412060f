"""Bars and tables for a terminal: cells of fixed width, colour only when asked for."""

import re
import textwrap
from collections.abc import Sequence

_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|GiB|ms|s)(?!\w))")

RESET = "\x1b[0m"
STYLES = {
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "red": "\x1b[31m",
    "green": "\x1b[32m",
    "yellow": "\x1b[33m",
    "blue": "\x1b[34m",
    "magenta": "\x1b[35m",
    "cyan": "\x1b[36m",
}


class Paint:
    """Styles text, or leaves it alone."""

    def __init__(self, *, color: bool) -> None:
        self.color = color

    def __call__(self, text: str, style: str) -> str:
        """The text in that style."""
        return f"{STYLES[style]}{text}{RESET}" if self.color and text else text


def bar(parts: Sequence[tuple[float, str, str]], total: float, width: int, paint: Paint) -> str:
    """A bar of ``width`` cells for parts of (size, letter, style); what no part covers is a dot.

    Cells are given by largest remainder, so that they add up and a part above half a cell is seen.
    """
    if total <= 0 or width < 1:
        return ""
    exact = [max(0.0, size) / total * width for size, _, _ in parts]
    over = sum(exact)
    if over > width:
        exact = [cells * width / over for cells in exact]
    cells = [int(value) for value in exact]
    left = round(min(over, width)) - sum(cells)
    order = sorted(range(len(parts)), key=lambda i: exact[i] - cells[i], reverse=True)
    for index in order[: max(0, left)]:
        cells[index] += 1
    drawn = "".join(paint(letter * n, style) for n, (_, letter, style) in zip(cells, parts, strict=True))
    return drawn + paint("." * (width - sum(cells)), "dim")


def columns(
    rows: Sequence[Sequence[str]], width: int, indent: str = "  ", *, room: int | None = None
) -> list[str]:
    """Rows with aligned columns, the last one wrapped.

    Where less than ``room`` is left for it (half of the width unless given), it goes below its row.
    """
    if not rows:
        return []
    sizes = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lead = sum(sizes) + 2 * len(sizes) + len(indent)
    below = lead > width - (room or width - width // 2)
    lines = []
    for row in rows:
        start = indent + "".join(f"{cell:<{size}}  " for cell, size in zip(row[:-1], sizes, strict=True))
        if below:
            lines.extend(paragraph("  ".join(row[:-1]), width, indent, 2 * indent))
            lines.extend(paragraph(row[-1], width, 2 * indent))
            continue
        body = _wrap(row[-1], width - lead) or [""]
        lines.append((start + body[0]).rstrip())
        lines.extend(" " * lead + more for more in body[1:])
    return lines


def paragraph(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Wrapped text with a hanging indent."""
    return _wrap(text, max(30, width), first, first if rest is None else rest)


def _wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    # A number and its unit stay on one line; textwrap does not break at a no-break space.
    joined = _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(joined, width, initial_indent=first, subsequent_indent=rest)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
