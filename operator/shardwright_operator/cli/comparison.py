"""A plan beside what its engine was measured at: a table for people, and one line that can be sent back to
us.

Few points are published for pipelines over several nodes. The line holds what is needed to judge a
prediction, and nothing that says whose cluster it is.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from shardwright_operator.observe.measurement import load_of
from shardwright_operator.status.verified import is_planned_load
from shardwright_planner import Plan
from shardwright_planner.bars import columns
from shardwright_planner.plan import Range
from shardwright_planner.wording import range_text, time_scale

FORMAT = 1
"""Version of the report's line."""


def comparison(plan: Plan, measured: Mapping[str, Any], *, width: int) -> str:
    """Planned against measured, as a table of at most ``width`` columns."""
    rows = [("", "planned", "measured", "off by"), *_rows(plan, measured)]
    load = load_of(measured)
    lines = columns(rows, width, "", room=8)
    if load is None:
        lines.append("Latency is measured after five minutes with twenty requests or more.")
    elif not is_planned_load(plan, load):
        lines.append("The load is beyond what the plan was made for; latencies cannot be compared.")
    return "\n".join(lines)


def report_line(plan: Plan, measured: Mapping[str, Any]) -> str:
    """One line of names and values without blanks in them."""
    goal, predicted, load = plan.goal, plan.predicted, load_of(measured)
    per_token = None if predicted is None else predicted.time_per_output_token_ms
    to_first = None if predicted is None else predicted.time_to_first_token_ms
    fields: dict[str, object] = {
        "model": plan.model,
        "gpu": plan.gpu,
        "nodes": f"{plan.nodes}x{plan.gpus_per_node}",
        "tp": plan.tensor_parallel,
        "pp": plan.pipeline_parallel,
        "dp": plan.data_parallel,
        "ep": int(plan.expert_parallel),
        "dtype": plan.dtype,
        "quantization": plan.quantization,
        "kv": plan.kv_cache_dtype,
        "vllm": plan.engine_version,
        "planner": plan.planner_version,
        "goal": f"{goal.input_tokens}+{goal.output_tokens}@{goal.concurrency}",
        "kvTokens": _pair(plan.kv_cache_tokens, measured.get("kvCacheTokens")),
        "startup": measured.get("startupSeconds"),
    }
    if load is not None:
        fields |= {
            "load": f"{load.input_tokens:g}@{load.running:g}",
            "tpotMs": _pair(_span(per_token), load.time_per_output_token_ms),
            "ttftMs": _pair(_span(to_first), load.time_to_first_token_ms),
            "preemptions": load.preemptions,
        }
    shown = " ".join(f"{name}={value}" for name, value in fields.items() if value not in {None, ""})
    return f"shardwright-report/{FORMAT} {shown}"


def _rows(plan: Plan, measured: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    tokens = measured.get("kvCacheTokens")
    yield (
        "KV cache, tokens",
        f"{plan.kv_cache_tokens:,}",
        _count(tokens),
        _off(tokens, plan.kv_cache_tokens),
    )
    blocks, size = measured.get("kvCacheBlocks"), measured.get("kvBlockTokens")
    if blocks and size:
        yield "  in blocks", "", f"{blocks:,} of {size}", ""
    length = measured.get("maxModelLength")
    yield (
        "longest request, tokens",
        f"{plan.max_model_length:,}",
        _count(length),
        _off(length, plan.max_model_length),
    )
    yield (
        "start-up",
        "",
        "" if measured.get("startupSeconds") is None else f"{measured['startupSeconds']} s",
        "",
    )
    load, predicted = load_of(measured), plan.predicted
    if load is None:
        return
    yield "requests at a time", f"{plan.goal.concurrency}", f"{load.running:g}", ""
    yield "prompt, tokens", f"{plan.goal.input_tokens:,}", f"{load.input_tokens:g}", ""
    if predicted is not None:
        yield _latency(
            "time per output token", predicted.time_per_output_token_ms, load.time_per_output_token_ms
        )
        yield _latency("time to first token", predicted.time_to_first_token_ms, load.time_to_first_token_ms)
    yield "preempted requests", "0", f"{load.preemptions}", ""


def _latency(what: str, predicted: Range, found: float | None) -> tuple[str, str, str, str]:
    if found is None:
        return what, range_text(predicted), "", ""
    if found > predicted.high:
        off = _off(found, predicted.high)
    elif found < predicted.low:
        off = _off(found, predicted.low)
    else:
        off = "within"
    scale = time_scale(predicted.high, found)
    return what, scale.range_text(predicted), scale.text(found), off


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _off(found: float | None, planned: float) -> str:
    return "" if not found or found == planned else f"{found / planned - 1:+.0%}"


def _span(figure: Range | None) -> str | None:
    return None if figure is None else f"{figure.low:.3g}..{figure.high:.3g}"


def _pair(planned: object, found: object) -> str | None:
    shown = f"{found:g}" if isinstance(found, float) else found
    return None if planned is None or found is None else f"{planned}/{shown}"
