"""The figure of latency against concurrency: the planned sizes under other loads, with the service level."""

from collections.abc import Iterator, Sequence

from shardwright_planner.plan import Plan
from shardwright_planner.report.canvas import (
    Scale,
    doublings,
    drawing,
    line,
    path,
    text,
    text_width,
    ticks,
)
from shardwright_planner.report.markup import Markup, element
from shardwright_planner.report.survey import Point
from shardwright_planner.wording import time_scale, time_text

WIDTH, HEIGHT = 420.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 16.0, 34.0, 52.0


def load_figures(plan: Plan, curve: Sequence[Point]) -> list[Markup]:
    """Time per output token and time to first token, low to high end as a band."""
    if len(curve) < 2:
        return []
    goal = plan.goal
    return [
        _figure(
            "load-token",
            "Time per output token",
            [(point.concurrency, point.token_ms) for point in curve],
            goal.time_per_output_token_ms,
            goal.concurrency,
        ),
        _figure(
            "load-first",
            "Time to first token",
            [(point.concurrency, point.first_ms) for point in curve],
            goal.time_to_first_token_ms,
            goal.concurrency,
        ),
    ]


Bands = Sequence[tuple[int, tuple[float, float]]]


def _figure(name: str, title: str, bands: Bands, goal: float | None, asked: int) -> Markup:
    peak = max(high for _, (_, high) in bands)
    # A goal far above the curve would press it flat: then only its value is told.
    shown = goal if goal is not None and goal <= 2.5 * peak else None
    seconds = max(peak, shown or 0.0) >= 4000.0
    unit = 1000.0 if seconds else 1.0
    marks = ticks(max(peak, (shown or 0.0) * 1.06) / unit, 5)
    x = Scale(low=bands[0][0], high=bands[-1][0], start=LEFT, end=WIDTH - RIGHT, logarithmic=True)
    y = Scale(low=0.0, high=marks[-1], start=HEIGHT - BOTTOM, end=TOP)
    upper = [(x(at), y(high / unit)) for at, (_, high) in bands]
    lower = [(x(at), y(low / unit)) for at, (low, _) in bands]
    parts = [
        text(LEFT, 16, f"{title}, {'s' if seconds else 'ms'}", "strong"),
        *_axes(x, y, marks),
        path([*upper, *reversed(lower)], "band", closed=True),
        path(upper, "curve"),
        path(lower, "curve-low"),
        *_asked(x, y, bands, asked, unit),
        *_goal(x, y, bands, goal=goal, shown=shown, unit=unit),
    ]
    last = bands[-1]
    described = (
        f"From {_ends(bands[0][1])} at {bands[0][0]} to {_ends(last[1])} at {last[0]} concurrent requests; "
        f"the goal is {'not given' if goal is None else time_text(goal)}"
    )
    return drawing(name, f"{title} against concurrency", described, (WIDTH, HEIGHT), parts)


def _axes(x: Scale, y: Scale, marks: Sequence[float]) -> Iterator[Markup]:
    for mark in marks:
        yield line(x.start, y(mark), x.end, y(mark), "grid")
        yield text(x.start - 8, y(mark) + 4, f"{mark:g}", "tick", "end")
    for mark in doublings(x.low, x.high, 9):
        if x.low <= mark <= x.high:
            yield line(x(mark), y.start, x(mark), y.start + 5, "axis-line")
            yield text(x(mark), y.start + 19, f"{mark:,.0f}", "tick", "middle")
    yield line(x.start, y.start, x.end, y.start, "axis-line")
    yield text((x.start + x.end) / 2, y.start + 40, "concurrent requests", "axis", "middle")


def _asked(x: Scale, y: Scale, bands: Bands, asked: int, unit: float) -> Iterator[Markup]:
    ends = next((ends for at, ends in bands if at == asked), None)
    if ends is None:
        return
    at = x(asked)
    yield line(at, y.end, at, y.start, "asked")
    hint = element("title", f"{asked} concurrent requests: {_ends(ends)}")
    yield element("circle", hint, cx=at, cy=y(ends[1] / unit), r=4.5, class_="mark")
    label = f"asked: {asked:,}"
    near = at + text_width(label) + 8 > x.end
    yield text(at - 6 if near else at + 6, y.start - 8, label, "tick halo", "end" if near else "start")


def _goal(
    x: Scale, y: Scale, bands: Bands, *, goal: float | None, shown: float | None, unit: float
) -> Iterator[Markup]:
    if goal is None:
        return
    if shown is None:
        yield text(x.end, 16, f"goal {time_text(goal)}, far above", "limit-label", "end")
        return
    at = y(shown / unit)
    label = f"goal {time_text(goal)}"
    yield line(x.start, at, x.end, at, "limit")
    # Above the line, unless the curve begins there.
    begin = [y(end / unit) for end in bands[0][1]]
    covered = min(begin) < at + 2 and max(begin) > at - 20
    yield text(x.start + 6, at + 15 if covered and at + 24 < y.start else at - 6, label, "limit-label")


def _ends(ends: tuple[float, float]) -> str:
    return time_scale(ends[1]).ends_text(*ends)
