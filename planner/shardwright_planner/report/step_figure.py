"""The figure of one output token's time: its terms one after the other, hidden ones as outlines."""

from collections.abc import Iterator

from shardwright_planner.plan import StepTime
from shardwright_planner.report.canvas import Scale, box, drawing, line, text, ticks
from shardwright_planner.report.markup import Markup
from shardwright_planner.wording import step_terms

WIDTH = 860.0
LEFT, RIGHT, TOP, ROW, BOTTOM = 146.0, 64.0, 10.0, 28.0, 46.0
READS = ("weights", "KV cache")
LOOKS = {
    "weights": "weights",
    "KV cache": "cache",
    "compute": "activation",
    "AllReduce": "overhead",
    "sends": "overhead",
    "all-to-all": "overhead",
    "launches": "other",
    "prefill of others": "prefill",
}
Span = tuple[str, float, float, bool]
"""Term, begin and end in milliseconds, and whether it hides behind others."""


def step_figure(step: StepTime) -> Markup:
    """A cascade that adds up to the time per output token."""
    spans = list(_spans(step))
    height = TOP + len(spans) * ROW + BOTTOM
    most = max([step.total_ms, *(end for _, _, end, _ in spans)])
    marks = ticks(most, 8)
    scale = Scale(low=0.0, high=max(most, marks[-2]), start=LEFT, end=WIDTH - RIGHT)
    bottom = TOP + len(spans) * ROW
    parts = [
        *(part for mark in marks if mark <= scale.high for part in _mark(scale, mark, bottom)),
        *(part for index, span in enumerate(spans) for part in _row(scale, index, span)),
        line(scale(step.total_ms), TOP - 4, scale(step.total_ms), bottom, "asked"),
        text((LEFT + WIDTH - RIGHT) / 2, bottom + 38, "ms of one output token", "axis", "middle"),
    ]
    described = ", ".join(f"{name} {value:.1f} ms" for name, value in step_terms(step) if value >= 0.05)
    title = f"One output token takes {step.total_ms:.1f} ms, by term"
    return drawing("step", title, described, (WIDTH, height), parts)


def _spans(step: StepTime) -> Iterator[Span]:
    terms = dict(step_terms(step))
    reads = sum(terms[name] for name in READS)
    computes = terms["compute"]
    at = 0.0
    for name in READS:
        if terms[name] >= 0.05:
            yield name, at, at + terms[name], computes > reads
        at += terms[name]
    if computes >= 0.05:
        yield "compute", 0.0, computes, computes <= reads
    at = max(reads, computes)
    for name, value in terms.items():
        if name not in {*READS, "compute"} and value >= 0.05:
            yield name, at, at + value, False
            at += value


def _mark(scale: Scale, mark: float, bottom: float) -> Iterator[Markup]:
    yield line(scale(mark), TOP - 4, scale(mark), bottom, "grid")
    yield text(scale(mark), bottom + 18, f"{mark:g}", "tick", "middle")


def _row(scale: Scale, index: int, span: Span) -> Iterator[Markup]:
    name, begin, end, hidden = span
    y = TOP + index * ROW
    look = f"ghost-{LOOKS[name]}" if hidden else f"fill-{LOOKS[name]}"
    width = max(2.0, scale(end) - scale(begin))
    note = ", hidden" if hidden else ""
    yield text(LEFT - 12, y + 16, name, "", "end")
    yield box(scale(begin), y + 3, width, ROW - 9, look, hint=f"{name}: {end - begin:.1f} ms{note}")
    yield text(scale(begin) + width + 7, y + 16, f"{end - begin:.1f}{note}", "tick")
