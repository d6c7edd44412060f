"""The plan held against what the running engine says: a section of the status, and a condition. Pure.

Memory is the same whatever the load, so it always counts. Latency counts when the load is one that the plan
was made for: a slow answer to more or longer requests than planned is no fault of the plan.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from shardwright_operator.api.constants import ConditionType, Reason
from shardwright_operator.build.revision import Revision
from shardwright_operator.observe.measurement import Load, Measurement, load_of
from shardwright_operator.status.conditions import Condition
from shardwright_planner import Plan
from shardwright_planner.wording import time_scale

FEWER = 0.95
"""KV tokens may be so much fewer than planned: memory is predicted to a few per cent."""
MORE = 1.25
"""And so much more: the plan keeps a margin, but one this wide makes it ask for more GPUs than it needs."""
LATENCY = 1.1
"""Beyond the predicted range by so much: means of some minutes scatter."""
LOAD = 1.25
"""Requests at a time, and tokens of a prompt, up to which a load is one that the plan was made for."""


def measured_section(
    standing: object, measurement: Measurement | None, revision: Revision
) -> Mapping[str, Any] | None:
    """``status.measured`` of the revision: the measurement if it says something new, else what stands."""
    kept = standing if isinstance(standing, Mapping) and standing.get("revision") == revision.name else None
    if measurement is None or measurement.pods_hash != revision.pods_hash:
        return kept
    if kept is not None and not measurement.is_news(kept):
        return kept
    wire = {"group": measurement.group, "revision": revision.name, **measurement.to_wire()}
    if revision.plan.kv_cache_tokens:
        wire["plannedKvCacheTokens"] = revision.plan.kv_cache_tokens
    return wire


def plan_verified(plan: Plan, measured: Mapping[str, Any]) -> Condition:
    """The condition, from ``status.measured`` as it is written."""
    off = list(_differences(plan, measured))
    if off:
        return Condition(
            type=ConditionType.PLAN_VERIFIED,
            status=False,
            reason=Reason.DIFFERS_FROM_PLAN,
            message="; ".join(off),
        )
    return Condition(
        type=ConditionType.PLAN_VERIFIED,
        status=True,
        reason=Reason.AS_PLANNED,
        message="; ".join(_agreements(plan, measured)) or "the engine says nothing that the plan predicts",
    )


def is_planned_load(plan: Plan, load: Load) -> bool:
    """Whether no more was asked of the engine than the plan was made for."""
    goal = plan.goal
    return load.running <= goal.concurrency * LOAD and load.input_tokens <= goal.input_tokens * LOAD


def _differences(plan: Plan, measured: Mapping[str, Any]) -> Iterator[str]:
    tokens = measured.get("kvCacheTokens")
    if tokens and plan.kv_cache_tokens and not FEWER <= tokens / plan.kv_cache_tokens <= MORE:
        yield (
            f"the KV cache holds {tokens:,} tokens, {_off(tokens, plan.kv_cache_tokens)} "
            f"the {plan.kv_cache_tokens:,} planned"
        )
    length = measured.get("maxModelLength")
    if length and length != plan.max_model_length:
        yield f"the longest request has {length:,} tokens, {plan.max_model_length:,} were planned"
    load = load_of(measured)
    if load is None or not is_planned_load(plan, load):
        return
    if load.preemptions:
        yield f"{load.preemptions} requests lost their KV cache with {load.running:g} running"
    predicted = plan.predicted
    if predicted is None:
        return
    for what, found, bounds in (
        ("time per output token", load.time_per_output_token_ms, predicted.time_per_output_token_ms),
        ("time to first token", load.time_to_first_token_ms, predicted.time_to_first_token_ms),
    ):
        if found is not None and found > bounds.high * LATENCY:
            off, scale = _off(found, bounds.high), time_scale(found, bounds.high)
            yield f"{what} is {scale.text(found)}, {off} the {scale.text(bounds.high)} predicted at most"


def _agreements(plan: Plan, measured: Mapping[str, Any]) -> Iterator[str]:
    tokens = measured.get("kvCacheTokens")
    if tokens:
        yield f"the KV cache holds {tokens:,} tokens, {plan.kv_cache_tokens:,} were planned"
    load = load_of(measured)
    if load is None:
        return
    if not is_planned_load(plan, load):
        found = f"{load.running:g} requests of {load.input_tokens:g} tokens at a time"
        yield f"the load is beyond the plan's: {found}"
    elif plan.predicted is not None and load.time_per_output_token_ms is not None:
        bounds = plan.predicted.time_per_output_token_ms
        scale = time_scale(load.time_per_output_token_ms, bounds.high)
        yield (
            f"time per output token is {scale.text(load.time_per_output_token_ms)} with {load.running:g} "
            f"requests, {scale.range_text(bounds)} was predicted for {plan.goal.concurrency}"
        )


def _off(found: float, planned: float) -> str:
    share = found / planned - 1
    return f"{abs(share):.0%} {'more' if share > 0 else 'less'} than"
