"""A plan in readable text, from the plan alone.

The command line prints it with no cluster, and an operator's user prints it from ``status.plan`` weeks later;
nothing else than the record may be needed.
"""

from collections.abc import Iterator

from shardwright_planner.bars import Paint, bar, columns, paragraph
from shardwright_planner.gpu import GIB
from shardwright_planner.plan import Plan, Range, Rule, SplitCause, Stage

CAUSES = {
    SplitCause.NOT_SPLIT.value: "Not split: one GPU holds the model and the wanted cache.",
    SplitCause.WEIGHTS.value: "Split because it does not fit: the weights need more than fewer GPUs have.",
    SplitCause.CACHE.value: "Split because it does not fit: the cache for the wanted load needs more GPUs.",
    SplitCause.LATENCY.value: "Split because it is not fast enough: fewer GPUs miss the service level.",
    SplitCause.PINNED.value: "Split as pinned; no smaller layout was considered.",
}
MORE_REPLICAS = "More throughput than one replica has comes from replicas, not from a wider split."
NOTHING_FITS = "No layout of the allowed GPUs holds the weights and the cache for the stated load."
RULES = {
    Rule.ONE_GPU.value: "one GPU if it fits",
    Rule.TENSOR_IN_NODE.value: "one node: as much tensor parallelism as is needed",
    Rule.TENSOR_AND_PIPELINE.value: "several nodes: TP = GPUs of the node, PP = nodes",
    Rule.PIPELINE.value: "pipeline stages where tensor parallelism does not divide or reach",
    Rule.CROSS_NODE_TENSOR.value: "tensor parallelism over nodes, as opted in",
    Rule.DATA_EXPERT.value: "mixture of experts: data-parallel attention with expert parallelism",
    Rule.PINNED.value: "sizes pinned by the user",
    Rule.NOTHING_FITS.value: "nothing fits; the nearest candidate is shown",
}
LEGEND = (
    ("W", "weights", "blue"),
    ("K", "KV cache", "green"),
    ("A", "activation", "magenta"),
    ("O", "overhead", "yellow"),
    ("M", "margin", "cyan"),
)


def explain(plan: Plan, *, width: int = 100, color: bool = False) -> str:
    """The plan as text of at most ``width`` columns (40 at least), with ANSI colours only when asked for."""
    width = max(40, width)
    paint = Paint(color=color)
    sections = [
        list(_verdict(plan, width, paint)),
        list(_why(plan, width)),
        list(_memory(plan, width, paint)),
        list(_latency(plan, width)),
        list(_communication(plan, width)),
        list(_alternatives(plan, width)),
        list(_notes("Warnings", plan.warnings, width, paint, "yellow")),
        list(_notes("What would help", plan.remedies, width, paint, "cyan")),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _verdict(plan: Plan, width: int, paint: Paint) -> Iterator[str]:
    sizes = sizes_text(plan)
    where = f"{_count(plan.nodes, 'node')} x {plan.gpus_per_node} {plan.gpu}"
    if not plan.feasible:
        refused = "does not fit" if plan.rule == Rule.NOTHING_FITS.value else "refused"
        heading, style = f"{plan.model}: {refused}", "red"
    else:
        heading, style = f"{plan.model}: {sizes} on {where}", "bold"
    yield from (paint(line, style) for line in paragraph(heading, width))
    yield from paragraph(f"{plan.reason}.", width)
    if plan.slo_predicted is not None:
        style = "green" if plan.slo_predicted else "yellow"
        yield from (paint(line, style) for line in paragraph(f"SLO: {plan.slo_message}.", width))
    if plan.feasible and plan.recommended_replicas > 1:
        yield from paragraph(
            f"Recommended replicas for the stated requests per second: {plan.recommended_replicas}.", width
        )


def _why(plan: Plan, width: int) -> Iterator[str]:
    yield "Why"
    if plan.rule == Rule.NOTHING_FITS.value:
        yield from paragraph(NOTHING_FITS, width, "  ")
    else:
        yield from paragraph(CAUSES.get(plan.split_cause, plan.split_cause), width, "  ")
        yield from paragraph(MORE_REPLICAS, width, "  ")
    yield from paragraph(f"Rule: {RULES.get(plan.rule, plan.rule)}.", width, "  ")


def _memory(plan: Plan, width: int, paint: Paint) -> Iterator[str]:
    gpu = plan.gpu_memory_bytes
    budget = gpu * plan.gpu_memory_utilization
    yield from paragraph(
        f"Memory per GPU: {_gib(gpu)} GiB, of which vLLM {plan.engine_version} may use {_gib(budget)} "
        f"(utilization {plan.gpu_memory_utilization:.2f})",
        width,
    )
    cells = max(10, min(60, width - 24))
    for index, stage in enumerate(plan.stages):
        name = f"stage {index + 1}"
        layers = _count(stage.layers, "layer")
        yield f"  {name:<9}{bar(_parts(stage), max(gpu, _used(stage)), cells, paint)}  {layers}"
        figures = ", ".join(f"{label} {_gib(size)}" for size, label in _figures(stage))
        yield from paragraph(f"{figures} GiB", width, " " * 11)
    legend = "  ".join(f"{letter} {label}" for letter, label, _ in LEGEND)
    yield from paragraph(f"{legend}  . free", width, "  ")
    share = f"{plan.slo_concurrency:,.0f} typical requests of {_context(plan):,} tokens at once"
    longest = f"{plan.max_concurrency:,.1f} of the longest ({plan.max_model_length:,} tokens)"
    yield from paragraph(
        f"KV cache ({plan.kv_cache_dtype}): {plan.kv_cache_tokens:,} tokens; {share}, {longest}. "
        f"Wanted: {plan.goal.concurrency}.",
        width,
        "  ",
    )


def _latency(plan: Plan, width: int) -> Iterator[str]:
    predicted, step = plan.predicted, plan.step_time
    if predicted is None or step is None:
        return
    load = f"{plan.goal.concurrency} concurrent requests of {plan.goal.input_tokens:,} + "
    yield from paragraph(f"Predicted at {load}{plan.goal.output_tokens:,} tokens", width)
    rows = [
        _figure(
            "time per output token",
            predicted.time_per_output_token_ms,
            plan.goal.time_per_output_token_ms,
            predicted.time_per_output_token_confidence.value,
        ),
        _figure(
            "time to first token",
            predicted.time_to_first_token_ms,
            plan.goal.time_to_first_token_ms,
            predicted.time_to_first_token_confidence.value,
        ),
        (
            "throughput",
            f"{predicted.tokens_per_second:,.0f} tokens/s",
            f"{predicted.requests_per_second:.2f} requests/s of one replica",
        ),
    ]
    yield from columns(rows, width)
    terms = (
        ("weights", step.weights_ms),
        ("KV cache", step.kv_cache_ms),
        ("compute (overlaps the reads)", step.compute_ms),
        ("AllReduce", step.all_reduce_ms),
        ("sends", step.send_ms),
        ("all-to-all", step.all_to_all_ms),
        ("launches", step.launch_ms),
        ("prefill of others", step.prefill_ms),
    )
    shown = [f"{name} {value:.1f}" for name, value in terms if value >= 0.05]
    yield from paragraph(
        f"One output token, ms: {', '.join(shown)}; in all {step.total_ms:.1f}. "
        f"Largest term: {step.binding}.",
        width,
        "  ",
    )


def _figure(name: str, figure: Range, goal: float | None, confidence: str) -> tuple[str, str, str]:
    spread = f"{_time(figure.low)} to {_time(figure.high)}"
    if goal is None:
        return name, spread, f"no goal; {confidence.lower()} confidence"
    word = "meets" if figure.high <= goal else "misses"
    return name, spread, f"{word} {_time(goal)}; {confidence.lower()} confidence"


def _communication(plan: Plan, width: int) -> Iterator[str]:
    c = plan.communication
    parts = []
    if c.all_reduces_per_step:
        parts.append(
            f"{c.all_reduces_per_step} AllReduce of {_size(c.all_reduce_bytes)} over {c.tensor_link}, "
            f"each GPU sends {_size(c.all_reduce_sent_bytes)} ({c.all_reduce_ms:.2f} ms)"
        )
    if c.sends_per_step:
        parts.append(
            f"{_count(c.sends_per_step, 'send')} of {_size(c.send_bytes)} between stages ({c.send_ms:.2f} ms)"
        )
    if c.all_to_alls_per_step:
        parts.append(
            f"{c.all_to_alls_per_step} all-to-all of {_size(c.all_to_all_bytes)} between experts "
            f"({c.all_to_all_ms:.2f} ms)"
        )
    if parts:
        yield from paragraph(f"A decode step moves: {'; '.join(parts)}.", width)


def _alternatives(plan: Plan, width: int) -> Iterator[str]:
    if not plan.alternatives:
        return
    yield "Also considered"
    several = len({a.pool for a in plan.alternatives}) > 1
    rows = []
    for a in plan.alternatives:
        sizes = f"TP{a.tensor_parallel} x PP{a.pipeline_parallel}"
        if a.data_parallel > 1 or a.expert_parallel:
            sizes += f" x DP{a.data_parallel}" + (" EP" if a.expert_parallel else "")
        if several:
            sizes += f" on {a.pool}"
        rows.append((sizes, _count(a.nodes, "node"), a.reason))
    yield from columns(rows, width)


def _notes(title: str, notes: tuple[str, ...], width: int, paint: Paint, style: str) -> Iterator[str]:
    if not notes:
        return
    yield paint(title, style)
    for note in notes:
        yield from paragraph(note, width, "  - ", "    ")


def sizes_text(plan: Plan) -> str:
    """The sizes in one phrase: ``TP8 x PP2``."""
    text = f"TP{plan.tensor_parallel}"
    if plan.pipeline_parallel > 1:
        text += f" x PP{plan.pipeline_parallel}"
    if plan.data_parallel > 1:
        text += f" x DP{plan.data_parallel}"
    return f"{text} with expert parallelism" if plan.expert_parallel else text


def _parts(stage: Stage) -> tuple[tuple[float, str, str], ...]:
    sizes = (
        stage.weights_bytes,
        stage.kv_cache_bytes,
        stage.activation_bytes,
        stage.overhead_bytes,
        stage.margin_bytes,
    )
    return tuple((float(size), letter, style) for size, (letter, _, style) in zip(sizes, LEGEND, strict=True))


def _figures(stage: Stage) -> Iterator[tuple[int, str]]:
    yield stage.weights_bytes, "weights"
    yield stage.kv_cache_bytes, "KV"
    yield stage.activation_bytes, "activation"
    yield stage.overhead_bytes, "overhead"
    yield stage.margin_bytes, "margin"
    yield stage.free_bytes, "free"
    if stage.missing_bytes:
        yield stage.missing_bytes, "missing"


def _used(stage: Stage) -> float:
    return sum(size for size, _, _ in _parts(stage))


def _context(plan: Plan) -> int:
    return plan.goal.input_tokens + plan.goal.output_tokens


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}"


def _size(size: float) -> str:
    return f"{size / 1024**2:.1f} MiB" if size >= 1024**2 else f"{size / 1024:.0f} KiB"


def _time(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 10_000 else f"{milliseconds:.0f} ms"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
