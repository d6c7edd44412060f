"""What binds a plan: the limit that rules out fewer GPUs, and how near its own limits are.

Read off the plan's record alone, so that a plan out of a status says it as well as a fresh one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from shardwright_planner.plan import Alternative, Plan, SplitCause
from shardwright_planner.wording import (
    alternative_text,
    count_text,
    fits,
    held_text,
    latency_goals,
    step_terms,
    time_scale,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much of one limit the plan uses; above 1 it is exceeded."""

    name: str
    share: float
    text: str


def binding_text(plan: Plan) -> str:
    """The binding constraint in one sentence."""
    if not fits(plan):
        return f"memory of a GPU, for {_short_of(plan)}"
    tightest = max(loads(plan), key=lambda load: load.share)
    if plan.slo_predicted is False and tightest.share > 1:
        return f"{tightest.name}: {tightest.text}"
    names = {
        SplitCause.WEIGHTS.value: "memory of a GPU, for the weights",
        SplitCause.CACHE.value: "memory of a GPU, for the KV cache",
        SplitCause.LATENCY.value: "the service level",
    }
    name = names.get(plan.split_cause)
    if name is None:
        return f"none; nearest to its limit is the {tightest.name}: {tightest.text}"
    below = step_down(plan)
    return name if below is None else f"{name}. {_step_text(below)}"


def step_down(plan: Plan) -> Alternative | None:
    """The candidate next below in GPUs on the same pool: what ruled it out is what binds."""
    same = [a for a in plan.alternatives if a.pool == plan.pool]
    smaller = [a for a in same if _world(a) < plan.gpus_per_replica]
    largest = max(map(_world, smaller), default=0)
    return next((a for a in smaller if _world(a) == largest), None)


def loads(plan: Plan) -> tuple[Load, ...]:
    """Use of every limit that the plan has: the cache, and the service levels that were given."""
    return tuple(_loads(plan))


def missed_text(plan: Plan) -> str:
    """Which term binds when the service level is missed: ``weights, 37.7 of 75.6 ms per output token``."""
    step = plan.step_time
    if step is None:
        return ""
    values = dict(step_terms(step))
    name = "prefill of others" if step.binding.startswith("prefill") else step.binding
    value = values.get(name)
    if value is None:
        return step.binding
    return f"{name}, {value:.1f} of {step.total_ms:.1f} ms per output token"


def _short_of(plan: Plan) -> str:
    """What a GPU has no memory for, where nothing fits."""
    stage = max(plan.stages, key=lambda each: each.missing_bytes)
    if plan.split_cause == SplitCause.WEIGHTS.value:
        return "the activations" if stage.activation_bytes > stage.weights_bytes else "the weights"
    if plan.max_concurrency >= 1 and plan.slo_concurrency >= plan.goal.concurrency:
        return "what CUDA and NCCL hold beside the engine"
    return "the KV cache"


def _loads(plan: Plan) -> Iterator[Load]:
    held = plan.slo_concurrency
    yield Load(
        name="KV cache",
        share=plan.goal.concurrency / held if held > 0 else float("inf"),
        text=f"holds {held_text(held)} typical requests where {plan.goal.concurrency:,} are wanted",
    )
    for name, high, goal in latency_goals(plan):
        scale = time_scale(high, goal)
        yield Load(
            name=name, share=high / goal, text=f"up to {scale.text(high)} where {scale.text(goal)} is wanted"
        )


def _step_text(below: Alternative) -> str:
    where = count_text(_world(below), "GPU")
    return f"One step down, {alternative_text(below)} on {where}: {below.reason}"


def _world(alternative: Alternative) -> int:
    return alternative.tensor_parallel * alternative.pipeline_parallel * alternative.data_parallel
