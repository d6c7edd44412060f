"""The figure of all candidates: GPUs, or their cost, against time per output token, the chosen one marked.

Who fits nowhere stands in a strip of its own, since it has no latency. The line joins the candidates that no
other beats in both what it takes and time.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardwright_planner.plan import Plan
from shardwright_planner.report.canvas import (
    Scale,
    doublings,
    drawing,
    line,
    path,
    text,
    text_width,
)
from shardwright_planner.report.markup import Markup, element
from shardwright_planner.report.survey import Row
from shardwright_planner.wording import time_text

WIDTH, HEIGHT = 860.0, 420.0
LEFT, RIGHT, TOP, BOTTOM = 70.0, 30.0, 70.0, 56.0
STRIP = 40.0
FEW = 10
"""Up to so many dots are all named."""

Spot = tuple[Row, float, float, float]
"""A timed candidate, its high end in milliseconds, and its place."""


@dataclass(frozen=True, slots=True)
class _Expense:
    """What a candidate takes: its cost where every one has a price, as in the choice, else its GPUs."""

    priced: bool

    def __call__(self, row: Row) -> float:
        return row.cost_per_hour or 0.0 if self.priced else float(row.gpus)

    def words(self, value: float) -> str:
        return f"{value:,.2f} per hour" if self.priced else f"{value:,.0f} GPUs"


def candidates_figure(plan: Plan, rows: Sequence[Row]) -> Markup:
    """A scatter over logarithmic axes; empty where nothing fits and nothing has a latency."""
    legal = [row for row in rows if row.legal]
    timed = [(row, row.token_ms[1]) for row in legal if row.fits and row.token_ms is not None]
    if not timed:
        return Markup()
    expense = _Expense(all(row.cost_per_hour is not None for row in legal))
    lost = Counter(expense(row) for row in legal if not row.fits)
    sizes = doublings(min(map(expense, legal)), max(map(expense, legal)))
    x = Scale(low=sizes[0] / 1.3, high=sizes[-1] * 1.3, start=LEFT, end=WIDTH - RIGHT, logarithmic=True)
    floor = HEIGHT - BOTTOM - (STRIP if lost else 0.0)
    parts = [*_legend(plan, expense), *_columns(x, sizes, expense)]
    parts += _timed(plan, timed, x, floor, expense)
    if lost:
        parts += _strip(x, lost, floor, expense)
    what = "cost" if expense.priced else "GPUs"
    title = f"Candidates: {what} of a replica against time per output token"
    return drawing("candidates", title, _described(legal), (WIDTH, HEIGHT), parts)


def _timed(
    plan: Plan, timed: Sequence[tuple[Row, float]], x: Scale, floor: float, expense: _Expense
) -> list[Markup]:
    values = [high for _, high in timed]
    goal = plan.goal.time_per_output_token_ms
    if goal is not None:
        values.append(goal)
    y = Scale(
        low=min(values) / 1.25,
        high=max(values) * 1.25,
        start=floor - 12,
        end=TOP,
        logarithmic=True,
    )
    spots = [(row, high, x(expense(row)), y(high)) for row, high in timed]
    front = _front(spots)
    parts = list(_rows(x, y))
    if goal is not None:
        parts.append(line(x.start, y(goal), x.end, y(goal), "limit"))
        parts.append(text(x.start + 6, y(goal) - 6, f"goal {time_text(goal)}", "limit-label"))
    if len(front) > 1:
        parts.append(path([(px, py) for _, _, px, py in front], "front"))
    ordered = sorted(spots, key=lambda spot: (spot[0].chosen, spot[0].meets))
    parts += [_spot(spot) for spot in ordered]
    parts += _labels(spots, spots if len(spots) <= FEW else front)
    return parts


def _legend(plan: Plan, expense: _Expense) -> Iterator[Markup]:
    x = LEFT
    given = plan.slo_predicted is not None
    entries = [
        ("chosen" if plan.feasible else "nearest", "dot-chosen"),
        ("meets the service level" if given else "fits", "dot-meets"),
        *([("misses it", "dot-misses")] if given else []),
    ]
    for label, look in entries:
        yield element("circle", cx=x + 5, cy=14, r=5, class_=look)
        yield text(x + 16, 18.5, label)
        x += 16 + text_width(label) + 24
    yield line(x, 14, x + 24, 14, "front")
    yield text(x + 31, 18.5, f"best for its {'cost' if expense.priced else 'GPUs'}")
    yield text(LEFT, 46, "time per output token, high end", "strong")


def _columns(x: Scale, sizes: Sequence[float], expense: _Expense) -> Iterator[Markup]:
    for size in sizes:
        yield line(x(size), TOP, x(size), HEIGHT - BOTTOM, "grid")
        yield text(x(size), HEIGHT - BOTTOM + 18, f"{size:,.4g}", "tick", "middle")
    what = "cost of one replica per hour" if expense.priced else "GPUs of one replica"
    yield text((x.start + x.end) / 2, HEIGHT - BOTTOM + 40, what, "axis", "middle")
    yield line(x.start, HEIGHT - BOTTOM, x.end, HEIGHT - BOTTOM, "axis-line")


def _rows(x: Scale, y: Scale) -> Iterator[Markup]:
    steps = (1.0, 2.0, 5.0) if y.high > 12 * y.low else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    marks = [step * 10.0**power for power in range(-1, 6) for step in steps]
    for mark in marks:
        if y.low <= mark <= y.high:
            yield line(x.start, y(mark), x.end, y(mark), "grid")
            yield text(x.start - 8, y(mark) + 4, f"{mark:g} ms", "tick", "end")


def _strip(x: Scale, lost: Counter[float], floor: float, expense: _Expense) -> list[Markup]:
    middle = floor + STRIP / 2 + 2
    parts = [
        line(x.start, floor, x.end, floor, "axis-line"),
        text(x.start - 8, middle + 4, "no fit", "tick", "end"),
    ]
    for taken, count in sorted(lost.items()):
        at = x(taken)
        hint = f"{count} candidates of {expense.words(taken)} do not fit"
        cross = f"M{at - 5:.1f} {middle - 5:.1f} l10 10 m0 -10 l-10 10"
        parts.append(element("path", element("title", hint), d=cross, class_="cross"))
        if count > 1:
            parts.append(text(at + 9, middle + 4, f"{count}", "tick"))
    return parts


def _front(spots: Sequence[Spot]) -> list[Spot]:
    best: list[Spot] = []
    for spot in sorted(spots, key=lambda s: (s[2], s[1])):
        if not best or spot[1] < best[-1][1]:
            if best and best[-1][2] == spot[2]:
                continue
            best.append(spot)
    return best


def _spot(spot: Spot) -> Markup:
    row, high, px, py = spot
    look = "dot-chosen" if row.chosen else "dot-meets" if row.meets else "dot-misses"
    hint = f"{row.label} on {row.gpus} GPUs: up to {time_text(high)}; {row.verdict}"
    return element("circle", element("title", hint), cx=px, cy=py, r=8 if row.chosen else 5, class_=look)


def _labels(spots: Sequence[Spot], named: Sequence[Spot]) -> Iterator[Markup]:
    # The chosen first, then the others: a label that would cover another, or a dot, is left to the hint.
    chosen = [spot for spot in spots if spot[0].chosen]
    taken = [(px - 6, py - 6, px + 6, py + 6) for _, _, px, py in spots]
    for spot in [*chosen, *(s for s in named if not s[0].chosen)]:
        row, _, px, py = spot
        label = row.label.replace(" with EP", " EP")
        wide = text_width(label)
        for dx, dy, anchor in ((12, 4, "start"), (-12, 4, "end"), (0, -14, "middle"), (0, 24, "middle")):
            left = px + dx - {"start": 0.0, "end": wide, "middle": wide / 2}[anchor]
            room = (left, py + dy - 11, left + wide, py + dy + 3)
            if room[2] > WIDTH - 4 or room[0] < LEFT or any(_overlap(room, other) for other in taken):
                continue
            taken.append(room)
            yield text(px + dx, py + dy, label, "strong" if row.chosen else "", anchor)
            break


def _overlap(one: tuple[float, float, float, float], two: tuple[float, float, float, float]) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def _described(rows: Sequence[Row]) -> str:
    fitting = [row for row in rows if row.fits]
    chosen = next((row.label for row in rows if row.chosen), "none")
    meeting = sum(row.meets for row in fitting)
    return (
        f"{len(rows)} legal candidates, {len(fitting)} of which fit and {meeting} are predicted to meet the "
        f"service level; chosen or nearest: {chosen}"
    )
