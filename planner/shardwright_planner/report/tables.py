"""The report's tables: candidates, memory, communication and changed questions."""

from collections.abc import Iterator, Sequence

from shardwright_planner.plan import Plan
from shardwright_planner.report.markup import Markup, element, joined
from shardwright_planner.report.survey import Row
from shardwright_planner.sensitivity import Variant
from shardwright_planner.wording import (
    TimeScale,
    count_text,
    gib_text,
    held_text,
    latency_scales,
    size_text,
    sizes_text,
    slo_miss_text,
    stage_runs,
    time_scale,
)

SHOWN = 12
MOST_ROWS = 200

Cell = tuple[str | Markup, str]
"""Content, and its class: ``n`` for numbers, ``k`` for names that stay on one line."""


def candidates_table(rows: Sequence[Row]) -> Markup:
    """Every candidate with its verdict, those that fit first; with its cost where any has a price."""
    several = len({row.pool for row in rows}) > 1
    priced = any(row.cost_per_hour is not None for row in rows)
    token = time_scale(*(row.token_ms[1] for row in rows if row.token_ms))
    first = time_scale(*(row.first_ms[1] for row in rows if row.first_ms))
    ordered = sorted(rows, key=lambda r: (not r.chosen, not r.fits, not r.legal, not r.meets, r.gpus))
    cost = ("per hour",) if priced else ()
    head = ("sizes", "GPUs", "nodes", *cost, "weights", "fit at once", "per token", "first token", "verdict")
    body = [
        (
            [
                (_sizes(row, several=several), "k"),
                (f"{row.gpus:,}", "n"),
                (f"{row.nodes:,}", "n"),
                *(((_cost(row), "n"),) if priced else ()),
                (f"{gib_text(row.weights_bytes)} GiB" if row.weights_bytes else "", "n"),
                (held_text(row.requests) if row.fits else "", "n"),
                (_ends(row.token_ms, token), "n"),
                (_ends(row.first_ms, first), "n"),
                (row.verdict, "w"),
            ],
            "chosen" if row.chosen else "" if row.fits else "lost",
        )
        for row in ordered[:MOST_ROWS]
    ]
    numbers = frozenset(range(1, len(head) - 1))
    more = _folded(len(ordered) - SHOWN, _table(head, numbers, body[SHOWN:]), len(ordered) - MOST_ROWS)
    return joined([_table(head, numbers, body[:SHOWN]), more])


def _sizes(row: Row, *, several: bool) -> str | Markup:
    sizes = row.label.replace(" with EP", " EP")
    return joined([sizes, element("br"), element("small", row.pool)]) if several else sizes


def _cost(row: Row) -> str:
    return "" if row.cost_per_hour is None else f"{row.cost_per_hour:,.2f}"


def _folded(count: int, table: Markup, left_out: int) -> Markup:
    if count <= 0:
        return Markup()
    summary = element("summary", f"{count_text(count, 'more candidate')}")
    rest = f"{count_text(left_out, 'candidate')} beyond these are left out."
    notes = [element("p", rest, class_="soft")] if left_out > 0 else []
    return element("details", summary, table, *notes)


def memory_table(plan: Plan) -> Markup:
    """The ledger of memory: GiB on each GPU, by stage."""
    fields = ("weights", "kv_cache", "activation", "overhead", "margin", "free", "missing")
    missing = any(stage.missing_bytes for stage in plan.stages)
    used = fields if missing else fields[:-1]
    head = ("", "layers", *(field.replace("kv_cache", "KV cache") for field in used))
    body = [
        (
            [
                (name, "k"),
                (f"{stage.layers:,}", "n"),
                *((gib_text(getattr(stage, f"{field}_bytes")), "n") for field in used),
            ],
            "",
        )
        for name, stage in stage_runs(plan.stages)
    ]
    return _table(head, frozenset(range(1, len(head))), body)


def communication_table(plan: Plan) -> Markup:
    """The ledger of communication: what one decode step moves; empty when nothing does."""
    rows = list(_moves(plan))
    if not rows:
        return Markup()
    head = ("operation", "over", "times in a step", "bytes each", "time")
    return _table(head, frozenset({2, 3, 4}), [(cells, "") for cells in rows])


def _moves(plan: Plan) -> Iterator[list[Cell]]:
    c = plan.communication
    between = "network" if plan.nodes > 1 else "the node's links"
    for name, over, times, size, taken in (
        ("AllReduce", c.tensor_link, c.all_reduces_per_step, c.all_reduce_bytes, c.all_reduce_ms),
        ("send to the next stage", between, c.sends_per_step, c.send_bytes, c.send_ms),
        ("all-to-all of experts", between, c.all_to_alls_per_step, c.all_to_all_bytes, c.all_to_all_ms),
    ):
        if times:
            yield [
                (name, "k"),
                (over, ""),
                (f"{times:,}", "n"),
                (size_text(size), "n"),
                (f"{taken:.2f} ms", "n"),
            ]


def variants_table(plan: Plan, variants: Sequence[Variant]) -> Markup:
    """What changes with the question; the plan itself stands first."""
    head = ("", "sizes", "GPUs", "per token", "first token", "fit at once", "verdict")
    scales = latency_scales([plan, *(v.plan for v in variants if v.plan is not None and v.fits)])
    body: list[tuple[list[Cell], str]] = [(_plan_cells("as asked", plan, scales), "chosen")]
    for variant in variants:
        name = joined([variant.change, element("br"), element("small", variant.detail)])
        if variant.plan is None:
            body.append(([(name, "k"), *(("", ""),) * 5, (variant.refusal, "w")], "lost"))
        elif not variant.fits:
            body.append(([(name, "k"), *(("", ""),) * 5, (variant.plan.reason, "w")], "lost"))
        else:
            body.append((_plan_cells(name, variant.plan, scales), ""))
    return _table(head, frozenset(range(2, 6)), body)


def _plan_cells(name: str | Markup, plan: Plan, scales: tuple[TimeScale, TimeScale]) -> list[Cell]:
    predicted, (token, first) = plan.predicted, scales
    verdict = {
        None: "fits" if predicted else "does not fit",
        True: element("span", "meets the SLO", class_="good-text"),
        False: element(
            "span", f"SLO {slo_miss_text(plan)}" if predicted else "does not fit", class_="bad-text"
        ),
    }[plan.slo_predicted]
    return [
        (name, "k"),
        (sizes_text(plan).replace(" with expert parallelism", " EP"), "k"),
        (f"{plan.gpus_per_replica:,}", "n"),
        (token.range_text(predicted.time_per_output_token_ms) if predicted else "", "n"),
        (first.range_text(predicted.time_to_first_token_ms) if predicted else "", "n"),
        (f"{held_text(plan.slo_concurrency)} of {plan.goal.concurrency:,}", "n"),
        (verdict, ""),
    ]


def replicas_text(plan: Plan) -> str:
    """GPUs in all for the recommended replicas; empty for one."""
    count = plan.recommended_replicas
    if count == 1:
        return ""
    return (
        f"{count_text(count, 'replica')} for the stated requests per second: "
        f"{count * plan.gpus_per_replica:,} GPUs in all"
    )


def _table(
    head: Sequence[str], numbers: frozenset[int], body: Sequence[tuple[Sequence[Cell], str]]
) -> Markup:
    cells = (
        element("th", name, class_="n" if place in numbers else None, scope="col")
        for place, name in enumerate(head)
    )
    rows = (
        element("tr", *(element("td", text, class_=look or None) for text, look in row), class_=mark or None)
        for row, mark in body
    )
    table = element("table", element("thead", element("tr", *cells)), element("tbody", *rows))
    return element("div", table, class_="scroll")


def _ends(ends: tuple[float, float] | None, scale: TimeScale) -> str:
    return "" if ends is None else scale.ends_text(*ends)
