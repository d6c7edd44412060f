"""A plan in readable text, from the plan alone.

The command line prints it with no cluster, and an operator's user prints it from ``status.plan`` weeks later;
nothing else than the record may be needed. What a request can tell besides (its variants, notes on where the
facts come from) is added when it is at hand.
"""

from collections.abc import Iterator, Sequence

from shardwright_planner.bars import Paint, bar, columns, paragraph
from shardwright_planner.binding import binding_text, loads, missed_text
from shardwright_planner.plan import Alternative, Plan, Range, Stage
from shardwright_planner.sensitivity import Variant
from shardwright_planner.wording import (
    MORE_REPLICAS,
    RULES,
    TimeScale,
    alternative_text,
    cache_text,
    cause_text,
    context_tokens,
    cost_text,
    count_text,
    fits,
    gib_text,
    held_text,
    latency_scales,
    range_text,
    size_text,
    sizes_text,
    slo_miss_text,
    stage_runs,
    step_terms,
    time_scale,
    where_text,
)

FOLDED = 6
AS_ASKED = "as asked"
VARIANT_WIDTH = 92
VARIANT_HEAD = ("", "sizes", "per output token", "to first token", "fit at once", "SLO")
LEGEND = (
    ("W", "weights", "blue"),
    ("K", "KV cache", "green"),
    ("A", "activation", "magenta"),
    ("O", "overhead", "yellow"),
    ("M", "margin", "cyan"),
    ("!", "missing", "red"),
)


def explain(
    plan: Plan,
    *,
    width: int = 100,
    color: bool = False,
    whole: bool = False,
    variants: Sequence[Variant] = (),
    notes: Sequence[str] = (),
) -> str:
    """The plan as text of at most ``width`` columns (40 at least), with ANSI colours only when asked for.

    Args:
        plan: what to explain.
        width: columns of the terminal.
        color: whether to style with ANSI codes.
        whole: whether to list every candidate instead of the nearest few.
        variants: answers to changed questions, shown as a table.
        notes: further warnings that the record does not hold.
    """
    width = max(40, width)
    paint = Paint(color=color)
    warnings = (*plan.warnings, *(note for note in notes if note not in plan.warnings))
    sections = [
        list(_verdict(plan, width, paint)),
        list(_why(plan, width, paint)),
        list(_missed(plan, width, paint)),
        list(_notes("What would help", plan.remedies, width, paint, "cyan")),
        list(_memory(plan, width, paint)),
        list(_latency(plan, width, paint)),
        list(_communication(plan, width)),
        list(_sensitivity(plan, variants, width, paint)),
        list(_alternatives(plan, width, paint, whole=whole)),
        list(_notes("Warnings", warnings, width, paint, "yellow")),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _verdict(plan: Plan, width: int, paint: Paint) -> Iterator[str]:
    if not plan.feasible:
        refused = "refused" if fits(plan) else "does not fit"
        heading, style = f"{plan.model}: {refused}", "red"
    else:
        heading, style = f"{plan.model}: {sizes_text(plan)} on {where_text(plan)}", "bold"
    yield from (paint(line, style) for line in paragraph(heading, width))
    yield from paragraph(f"{plan.reason}.", width)
    if plan.slo_predicted is not None:
        style = "green" if plan.slo_predicted else "yellow"
        yield from (paint(line, style) for line in paragraph(f"SLO: {plan.slo_message}.", width))
    if plan.feasible and plan.recommended_replicas > 1:
        yield from paragraph(
            f"Recommended replicas for the stated requests per second: {plan.recommended_replicas}.", width
        )
    if plan.cost_per_hour is not None:
        yield from paragraph(f"Cost: {cost_text(plan)}.", width)


def _why(plan: Plan, width: int, paint: Paint) -> Iterator[str]:
    yield paint("Why", "bold")
    yield from paragraph(cause_text(plan), width, "  ")
    if fits(plan):
        yield from paragraph(MORE_REPLICAS, width, "  ")
    yield from paragraph(f"Rule: {RULES.get(plan.rule, plan.rule)}.", width, "  ")
    yield from paragraph(f"Binding constraint: {binding_text(plan)}.", width, "  ")
    if fits(plan):
        shares = ", ".join(f"{load.name} {_percent(load.share)}" for load in loads(plan))
        yield from paragraph(f"Use of its limits: {shares}.", width, "  ")


def _missed(plan: Plan, width: int, paint: Paint) -> Iterator[str]:
    if plan.slo_predicted is not False or not fits(plan):
        return
    yield paint("No layout meets the service level", "yellow")
    closest = f"{sizes_text(plan)} on {where_text(plan)}"
    yield from paragraph(f"Closest for what it takes is {closest}.", width, "  ")
    if plan.step_time is not None:
        yield from paragraph(f"Largest term: {missed_text(plan)}.", width, "  ")


def _memory(plan: Plan, width: int, paint: Paint) -> Iterator[str]:
    gpu = plan.gpu_memory_bytes
    budget = gpu * plan.gpu_memory_utilization
    heading = (
        f"Memory per GPU: {gib_text(gpu)} GiB, of which vLLM {plan.engine_version} may use "
        f"{gib_text(budget)} (utilization {plan.gpu_memory_utilization:.2f})"
    )
    yield from (paint(line, "bold") for line in paragraph(heading, width))
    cells = max(10, min(60, width - 26))
    for name, stage in stage_runs(plan.stages):
        layers = count_text(stage.layers, "layer")
        yield f"  {name:<11}{bar(_parts(stage), max(gpu, _used(stage)), cells, paint)}  {layers}"
        figures = ", ".join(f"{label} {gib_text(size)}" for size, label in _figures(stage))
        yield from paragraph(f"{figures} GiB", width, " " * 13)
    shown = LEGEND if any(stage.missing_bytes for stage in plan.stages) else LEGEND[:-1]
    legend = "  ".join(f"{letter} {label}" for letter, label, _ in shown)
    yield from paragraph(f"{legend}  . free", width, "  ")
    yield from paragraph(_held(plan), width, "  ")


def _held(plan: Plan) -> str:
    wanted = f"Wanted: {plan.goal.concurrency:,}"
    if not plan.kv_cache_tokens:
        return (
            f"KV cache: nothing is left for it. {wanted} requests of {context_tokens(plan):,} tokens at once."
        )
    share = f"{held_text(plan.slo_concurrency)} typical requests of {context_tokens(plan):,} tokens at once"
    longest = f"{plan.max_concurrency:,.1f} of the longest ({plan.max_model_length:,} tokens)"
    return f"KV cache ({cache_text(plan)}): {plan.kv_cache_tokens:,} tokens; {share}, {longest}. {wanted}."


def _latency(plan: Plan, width: int, paint: Paint) -> Iterator[str]:
    predicted, step = plan.predicted, plan.step_time
    if predicted is None or step is None:
        return
    load = f"{plan.goal.concurrency} concurrent requests of {plan.goal.input_tokens:,} + "
    unmeasured = "; with several stages derived, not measured" if plan.pipeline_parallel > 1 else ""
    heading = f"Predicted at {load}{plan.goal.output_tokens:,} tokens{unmeasured}"
    yield from (paint(line, "bold") for line in paragraph(heading, width))
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
    yield from paragraph(f"One output token takes {step.total_ms:.1f} ms:", width, "  ")
    cells = max(8, min(40, width - 40))
    longest = max(value for _, value in step_terms(step)) or 1.0
    hidden = min(step.compute_ms, step.weights_ms + step.kv_cache_ms)
    for name, value in step_terms(step):
        if value < 0.05:
            continue
        filled = max(1, round(value / longest * cells))
        binds = name == step.binding or (name.startswith("prefill") and step.binding.startswith("prefill"))
        note = "largest" if binds else ""
        if name == "compute" and hidden == step.compute_ms:
            note = "hidden behind the reads"
        room = width - 32 - filled
        line = f"    {name:<18}{value:>7.1f}  {paint('=' * filled, 'blue' if binds else 'dim')}"
        yield f"{line} {note}" if note and len(note) <= room else line


def _figure(name: str, figure: Range, goal: float | None, confidence: str) -> tuple[str, str, str]:
    if goal is None:
        return name, range_text(figure), f"no goal; {confidence.lower()} confidence"
    word, scale = "meets" if figure.high <= goal else "misses", time_scale(figure.high, goal)
    return name, scale.range_text(figure), f"{word} {scale.text(goal)}; {confidence.lower()} confidence"


def _communication(plan: Plan, width: int) -> Iterator[str]:
    c = plan.communication
    parts = []
    if not fits(plan):
        return
    if c.all_reduces_per_step:
        parts.append(
            f"{c.all_reduces_per_step} AllReduce of {size_text(c.all_reduce_bytes)} over {c.tensor_link}, "
            f"each GPU sends {size_text(c.all_reduce_sent_bytes)} ({c.all_reduce_ms:.2f} ms)"
        )
    if c.sends_per_step:
        parts.append(
            f"{count_text(c.sends_per_step, 'send')} of {size_text(c.send_bytes)} between stages "
            f"({c.send_ms:.2f} ms)"
        )
    if c.all_to_alls_per_step:
        parts.append(
            f"{c.all_to_alls_per_step} all-to-all of {size_text(c.all_to_all_bytes)} between experts "
            f"({c.all_to_all_ms:.2f} ms)"
        )
    if parts:
        yield from paragraph(f"A decode step moves: {'; '.join(parts)}.", width)


def _sensitivity(plan: Plan, variants: Sequence[Variant], width: int, paint: Paint) -> Iterator[str]:
    if not variants:
        return
    yield paint("What if", "bold")
    answered = [(v, v.plan) for v in variants if v.plan is not None and v.fits]
    scales = latency_scales([plan, *(changed for _, changed in answered)])
    rows = [_variant_row(variant.change, changed, scales) for variant, changed in answered]
    if rows and fits(plan):
        rows.insert(0, _variant_row(AS_ASKED, plan, scales))
    if rows and width >= VARIANT_WIDTH:
        head, *lines = columns([VARIANT_HEAD, *rows], width, room=8)
        yield paint(head, "dim")
        yield from lines
    elif rows:
        for change, sizes, token, first, held, verdict in rows:
            text = f"{change}: {sizes}, {token} per output token, {first} to first token, {held} fit at once"
            yield from paragraph(f"{text}; SLO {verdict}.", width, "  ", "    ")
    for variant in variants:
        if variant.plan is None or not variant.fits:
            # A plan that does not fit says so first.
            why = (
                variant.plan.reason[:1].lower() + variant.plan.reason[1:] if variant.plan else variant.refusal
            )
            yield from paragraph(f"{variant.change}: {why}.", width, "  ", "    ")


def _variant_row(
    change: str, plan: Plan, scales: tuple[TimeScale, TimeScale]
) -> tuple[str, str, str, str, str, str]:
    """A plan that fits as cells below ``VARIANT_HEAD``, latencies in the units of the whole table."""
    predicted = plan.predicted
    token, first = scales
    return (
        change,
        sizes_text(plan).replace(" with expert parallelism", " EP"),
        token.range_text(predicted.time_per_output_token_ms) if predicted else "",
        first.range_text(predicted.time_to_first_token_ms) if predicted else "",
        held_text(plan.slo_concurrency),
        slo_miss_text(plan),
    )


def _alternatives(plan: Plan, width: int, paint: Paint, *, whole: bool) -> Iterator[str]:
    if not plan.alternatives:
        return
    yield paint("Also considered", "bold")
    several = len({a.pool for a in plan.alternatives} | {plan.pool}) > 1
    shown = plan.alternatives if whole else plan.alternatives[:FOLDED]
    yield from columns([_alternative_row(a, several=several) for a in shown], width)
    left = len(plan.alternatives) - len(shown)
    if left:
        yield from paragraph(f"... and {left} more; --all shows them.", width, "  ")


def _alternative_row(alternative: Alternative, *, several: bool) -> tuple[str, str, str]:
    sizes = alternative_text(alternative)
    if several:
        sizes += f" on {alternative.pool}"
    return sizes, count_text(alternative.nodes, "node"), alternative.reason


def _notes(title: str, notes: Sequence[str], width: int, paint: Paint, style: str) -> Iterator[str]:
    if not notes:
        return
    yield paint(title, style)
    for note in notes:
        yield from paragraph(note, width, "  - ", "    ")


def _parts(stage: Stage) -> tuple[tuple[float, str, str], ...]:
    sizes = (
        stage.weights_bytes,
        stage.kv_cache_bytes,
        stage.activation_bytes,
        stage.overhead_bytes,
        stage.margin_bytes,
        stage.missing_bytes,
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


def _percent(share: float) -> str:
    return "over 1000 %" if share > 10 else f"{100 * share:.0f} %"
