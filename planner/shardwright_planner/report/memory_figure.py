"""The figure of memory by stage: a bar per stage, with the line that the engine must not cross."""

from collections.abc import Iterator

from shardwright_planner.gpu import GIB
from shardwright_planner.plan import Plan, Stage
from shardwright_planner.report.canvas import Scale, box, drawing, line, text, text_width, ticks
from shardwright_planner.report.markup import Markup
from shardwright_planner.wording import count_text, gib_text, stage_runs

WIDTH = 860.0
LEFT, RIGHT = 112.0, 24.0
TOP, BAR, GAP, BOTTOM = 64.0, 34.0, 14.0, 44.0
PARTS = (
    ("weights", "weights_bytes", "weights"),
    ("KV cache", "kv_cache_bytes", "cache"),
    ("activation", "activation_bytes", "activation"),
    ("overhead", "overhead_bytes", "overhead"),
    ("margin", "margin_bytes", "margin"),
    ("missing", "missing_bytes", "missing"),
)


def memory_figure(plan: Plan) -> Markup:
    """Stacked bars in GiB, neighbouring stages that are alike drawn once."""
    runs = list(stage_runs(plan.stages))
    height = TOP + len(runs) * (BAR + GAP) + BOTTOM
    longest = max([plan.gpu_memory_bytes, *(_used(stage) for _, stage in runs)]) / GIB
    marks = ticks(longest, 6)
    scale = Scale(low=0.0, high=max(longest * 1.02, marks[-2]), start=LEFT, end=WIDTH - RIGHT)
    bottom = TOP + len(runs) * (BAR + GAP)
    limit = plan.gpu_memory_bytes * plan.gpu_memory_utilization
    parts = [
        *_legend(any(stage.missing_bytes for _, stage in runs)),
        *_axis(scale, [mark for mark in marks if mark <= scale.high], bottom),
        *(part for index, run in enumerate(runs) for part in _stage(scale, index, *run)),
        *_limits(scale, limit / GIB, plan.gpu_memory_bytes / GIB, bottom),
    ]
    described = "; ".join(f"{name}: {_figures(stage)}" for name, stage in runs)
    return drawing("memory", "Memory of each GPU by pipeline stage", described, (WIDTH, height), parts)


def _legend(missing: bool) -> Iterator[Markup]:
    x = LEFT
    for label, _, look in PARTS if missing else PARTS[:-1]:
        yield box(x, 8, 12, 12, f"fill-{look}")
        yield text(x + 18, 18.5, label)
        x += 18 + text_width(label) + 22


def _axis(scale: Scale, marks: list[float], bottom: float) -> Iterator[Markup]:
    for mark in marks:
        x = scale(mark)
        yield line(x, TOP - 6, x, bottom, "grid")
        yield text(x, bottom + 18, f"{mark:g}", "tick", "middle")
    yield text((scale.start + scale.end) / 2, bottom + 36, "GiB on each GPU of the stage", "axis", "middle")


def _stage(scale: Scale, index: int, name: str, stage: Stage) -> Iterator[Markup]:
    y = TOP + index * (BAR + GAP)
    yield text(LEFT - 12, y + 15, name, "strong", "end")
    yield text(LEFT - 12, y + 29, count_text(stage.layers, "layer"), "tick", "end")
    at = 0.0
    for label, field, look in PARTS:
        size = getattr(stage, field) / GIB
        if size <= 0:
            continue
        x, width = scale(at), scale(at + size) - scale(at)
        yield box(x, y, width - 1, BAR, f"fill-{look}", hint=f"{name}: {label} {size:.1f} GiB")
        if width > text_width(f"{size:.1f}") + 8:
            yield text(x + width / 2, y + BAR / 2 + 4.5, f"{size:.1f}", f"on-{look}", "middle")
        at += size


def _limits(scale: Scale, limit: float, whole: float, bottom: float) -> Iterator[Markup]:
    x = scale(limit)
    yield line(x, TOP - 12, x, bottom + 4, "limit")
    yield text(x - 6, TOP - 14, f"the engine may use {limit:.1f}", "limit-label", "end")
    edge = scale(whole)
    yield line(edge, TOP - 12, edge, bottom + 4, "edge")
    room = scale.end - edge
    label = f"GPU {whole:.1f}"
    # The whole GPU lies near the right border, or far left of it when much is missing.
    if edge - x > text_width(label) + 6 or room < text_width(label):
        yield text(edge, TOP - 14, label, "tick", "end" if room < 20 else "middle")
    else:
        yield text(edge + 6, TOP - 14, label, "tick")


def _used(stage: Stage) -> int:
    return sum(int(getattr(stage, field)) for _, field, _ in PARTS)


def _figures(stage: Stage) -> str:
    shown = ((label, getattr(stage, field)) for label, field, _ in PARTS)
    return ", ".join(f"{label} {gib_text(size)}" for label, size in shown if size) + " GiB"
