"""The parts that all figures are drawn from: a titled drawing, lines, texts, and the ticks of axes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardwright_planner.report.markup import Markup, element

CHARACTER = 6.4
"""Mean width of a character of the figures' 12-pixel type; labels are placed by it."""


def drawing(
    name: str, title: str, described: str, size: tuple[float, float], parts: Iterable[Markup]
) -> Markup:
    """A figure as inline SVG with a title and a description for those who cannot see it."""
    width, height = size
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", described, id=f"{name}-desc"),
        *parts,
        view_box=f"0 0 {width:g} {height:g}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        xmlns="http://www.w3.org/2000/svg",
    )


def text(x: float, y: float, words: str, look: str = "", anchor: str = "start") -> Markup:
    """A line of text whose baseline is at ``y``."""
    place = None if anchor == "start" else anchor
    return element("text", words, x=x, y=y, class_=look or None, text_anchor=place)


def line(x1: float, y1: float, x2: float, y2: float, look: str) -> Markup:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=look)


def box(
    x: float, y: float, width: float, height: float, look: str, *, hint: str = "", round_: float = 2
) -> Markup:
    """A rectangle, with a hint that shows under the pointer."""
    return element(
        "rect",
        *([element("title", hint)] if hint else []),
        x=x,
        y=y,
        width=max(0.0, width),
        height=height,
        rx=round_ or None,
        class_=look,
    )


def path(points: Sequence[tuple[float, float]], look: str, *, closed: bool = False) -> Markup:
    """A line through points, or an area."""
    steps = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return element("path", d=f"M{steps}{'Z' if closed else ''}", class_=look)


def text_width(words: str) -> float:
    """About how wide a text is."""
    return len(words) * CHARACTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From values to pixels. A logarithmic one doubles in equal steps; it begins above zero."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        if self.logarithmic:
            share = math.log2(value / self.low) / math.log2(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def ticks(high: float, count: int = 5) -> list[float]:
    """Round values from zero to at least ``high``, about ``count`` steps of 1, 2, 2.5 or 5 times ten."""
    if high <= 0 or not math.isfinite(high):
        return [0.0, 1.0]
    rough = high / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(m * magnitude for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * magnitude >= rough * 0.999)
    steps = math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(steps + 1)]


def doublings(low: float, high: float, most: int = 9) -> list[float]:
    """Powers of two that span the values, thinned out to at most ``most``."""
    first = math.floor(math.log2(low))
    last = max(first + 1, math.ceil(math.log2(high) - 1e-9))
    stride = -(-(last - first + 1) // most)
    return [2.0**power for power in range(first, last + 1, stride)]
