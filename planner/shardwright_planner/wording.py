"""Quantities in the words of the explanations, so that the terminal and the report say them alike."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shardwright_planner.gpu import GIB
from shardwright_planner.plan import Alternative, Plan, Range, Rule, SplitCause, Stage, StepTime

CAUSES = {
    SplitCause.NOT_SPLIT.value: "Not split: one GPU holds the model and the wanted cache.",
    SplitCause.WEIGHTS.value: "Split because it does not fit: the weights are too large for fewer GPUs.",
    SplitCause.CACHE.value: "Split because it does not fit: the cache for the wanted load needs more GPUs.",
    SplitCause.LATENCY.value: "Split because it is not fast enough: fewer GPUs miss the service level.",
    SplitCause.PINNED.value: "Split as pinned; no smaller layout was considered.",
}
CLOSEST = "Split for speed: more GPUs come closer to a service level that none of the layouts meets."
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


def fits(plan: Plan) -> bool:
    """Whether the plan's layout holds the load, deployed or refused for its latency."""
    return plan.rule != Rule.NOTHING_FITS.value


def cause_text(plan: Plan) -> str:
    """Why the model runs on as many GPUs, in one sentence."""
    if not fits(plan):
        return NOTHING_FITS
    if plan.split_cause == SplitCause.LATENCY.value and plan.slo_predicted is False:
        return CLOSEST
    return CAUSES.get(plan.split_cause, plan.split_cause)


def sizes_text(plan: Plan) -> str:
    """The sizes in one phrase: ``TP8 x PP2``."""
    text = f"TP{plan.tensor_parallel}"
    if plan.pipeline_parallel > 1:
        text += f" x PP{plan.pipeline_parallel}"
    if plan.data_parallel > 1:
        text += f" x DP{plan.data_parallel}"
    return f"{text} with expert parallelism" if plan.expert_parallel else text


def stage_runs(stages: Sequence[Stage]) -> Iterator[tuple[str, Stage]]:
    """Stages with their names; neighbours that are alike are named together."""
    start = 0
    for index, stage in enumerate(stages):
        last = index + 1 == len(stages)
        if not last and stages[index + 1] == stage:
            continue
        name = f"stage {index + 1}" if start == index else f"stages {start + 1}-{index + 1}"
        yield name, stage
        start = index + 1


def alternative_text(alternative: Alternative) -> str:
    """The sizes of a candidate, stages included even where there is one."""
    text = f"TP{alternative.tensor_parallel} x PP{alternative.pipeline_parallel}"
    if alternative.data_parallel > 1 or alternative.expert_parallel:
        text += f" x DP{alternative.data_parallel}" + (" EP" if alternative.expert_parallel else "")
    return text


def where_text(plan: Plan) -> str:
    """Nodes and GPUs: ``2 nodes x 8 H100-SXM-80GB``."""
    return f"{count_text(plan.nodes, 'node')} x {plan.gpus_per_node} {plan.gpu}"


def cost_text(plan: Plan) -> str:
    """What the plan costs per hour, in the currency of the stated prices; empty without prices."""
    cost = plan.cost_per_hour
    if cost is None:
        return ""
    each = f"{count_text(plan.gpus_per_replica, 'GPU')} at {cost / plan.gpus_per_replica:.2f}"
    text = f"{cost:,.2f} per hour for one replica ({each})"
    count = plan.recommended_replicas
    return f"{text}, {count * cost:,.2f} for {count:,}" if count > 1 else text


def held_text(requests: float) -> str:
    """Requests that fit at once: whole ones."""
    return f"{int(requests):,}"


def cache_text(plan: Plan) -> str:
    """The cache's data type; "auto" with what it stands for."""
    return f"auto: {plan.dtype}" if plan.kv_cache_dtype == "auto" else plan.kv_cache_dtype


def context_tokens(plan: Plan) -> int:
    """Tokens of the typical request, prompt and output."""
    return plan.goal.input_tokens + plan.goal.output_tokens


def step_terms(step: StepTime) -> tuple[tuple[str, float], ...]:
    """The terms of one output token in milliseconds, in a fixed order."""
    return (
        ("weights", step.weights_ms),
        ("KV cache", step.kv_cache_ms),
        ("compute", step.compute_ms),
        ("AllReduce", step.all_reduce_ms),
        ("sends", step.send_ms),
        ("all-to-all", step.all_to_all_ms),
        ("launches", step.launch_ms),
        ("prefill of others", step.prefill_ms),
    )


def gib_text(size: float) -> str:
    """Bytes as GiB with one decimal, without the unit."""
    return f"{size / GIB:.1f}"


def size_text(size: float) -> str:
    """Bytes of a message with their unit."""
    return f"{size / 1024**2:.1f} MiB" if size >= 1024**2 else f"{size / 1024:.0f} KiB"


@dataclass(frozen=True, slots=True)
class TimeScale:
    """The unit of times that stand beside each other, with the digits that their smallest needs."""

    unit: str
    milliseconds: float
    digits: int

    def text(self, milliseconds: float) -> str:
        """One time, without a fraction of nought: ``30 s``."""
        return f"{self._number(milliseconds).removesuffix('.0')} {self.unit}"

    def range_text(self, figure: Range) -> str:
        """A range: ``64 to 87 ms``."""
        return self.ends_text(figure.low, figure.high)

    def ends_text(self, low: float, high: float) -> str:
        """The ends of a range, in milliseconds, as a text."""
        return f"{self._number(low)} to {self._number(high)} {self.unit}"

    def _number(self, milliseconds: float) -> str:
        return f"{milliseconds / self.milliseconds:.{self.digits}f}"


def time_scale(*milliseconds: float) -> TimeScale:
    """The one unit for times that are compared: ``900 ms`` and ``2.1 s`` in a column read wrongly."""
    least, largest = min(milliseconds, default=0.0), max(milliseconds, default=0.0)
    if largest >= 2_000 and least >= 100:
        return TimeScale("s", 1000.0, 1 if least >= 1_000 else 2)
    return TimeScale("ms", 1.0, 0 if least >= 10 else 1)


def time_text(milliseconds: float) -> str:
    """Milliseconds as people read latencies."""
    if milliseconds >= 10_000:
        return f"{milliseconds / 1000:.1f} s"
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1f} ms"


def range_text(figure: Range) -> str:
    """A range that stands alone, in one unit: ``64 to 87 ms``."""
    return time_scale(figure.high).range_text(figure)


def latency_scales(plans: Iterable[Plan]) -> tuple[TimeScale, TimeScale]:
    """The units of the time per output token and of that to the first token, for plans that are compared."""
    predicted = [plan.predicted for plan in plans if plan.predicted is not None]
    return (
        time_scale(*(each.time_per_output_token_ms.high for each in predicted)),
        time_scale(*(each.time_to_first_token_ms.high for each in predicted)),
    )


def slo_verdict(plan: Plan) -> str:
    """Whether the service level is met, and by how much it is missed: ``missed by 12 % per output token``."""
    if plan.slo_predicted is None:
        return "none given"
    if plan.slo_predicted:
        return "met"
    over = ", ".join(
        f"{100 * (high / goal - 1):.0f} % {name.removeprefix('time ')}"
        for name, high, goal in latency_goals(plan)
        if high > goal
    )
    return f"missed by {over}" if over else "missed"


def slo_miss_text(plan: Plan) -> str:
    """The same of the level that is missed by most, for narrow columns: ``missed by 12 %``."""
    if plan.slo_predicted is not False:
        return slo_verdict(plan)
    over = max((high / goal - 1 for _, high, goal in latency_goals(plan)), default=0.0)
    return f"missed by {100 * over:.0f} %" if over > 0 else "missed"


def latency_goals(plan: Plan) -> Iterator[tuple[str, float, float]]:
    """Name, predicted high end and goal of each level that was given, in milliseconds."""
    goal, predicted = plan.goal, plan.predicted
    if predicted is None:
        return
    if goal.time_per_output_token_ms:
        yield "time per output token", predicted.time_per_output_token_ms.high, goal.time_per_output_token_ms
    if goal.time_to_first_token_ms:
        yield "time to first token", predicted.time_to_first_token_ms.high, goal.time_to_first_token_ms


def count_text(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
