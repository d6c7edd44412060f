"""Where the planner falls short of what is asked of it, and by which term: what a sceptic reads first.

A wrong verdict is told with the ledger of its start-up. Pairs in the wrong order are counted by model and
system, with how many of them were measured within noise of each other, and by what their rows differ in.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from measured_rows import CapacityRow
from scores import SAME_WITHIN, CapacityScore, LatencyScore, bench_of, log_ratio, pairs_of

from shardwright_planner.activation import START_SLACK_BYTES, overhead_of
from shardwright_planner.gpu import GIB
from shardwright_planner.workbench import Workbench

MORE = 0.05


@dataclass(frozen=True, slots=True)
class Target:
    """A figure and its bound: at most, or at least where ``least`` is set."""

    name: str
    value: float | None
    bound: float
    least: bool = False

    @property
    def reached(self) -> bool | None:
        """None where nothing was measured."""
        if self.value is None:
            return None
        return self.value >= self.bound if self.least else self.value <= self.bound

    def wire(self) -> dict[str, object]:
        """As plain JSON types."""
        sign = ">=" if self.least else "<="
        return {
            "name": self.name,
            "target": f"{sign} {self.bound:g}",
            "value": self.value,
            "reached": self.reached,
        }


def capacity_targets(summary: Mapping) -> list[dict[str, object]]:
    """What is asked of the memory figures, leave-one-model-out."""
    tokens, weights = summary["kvTokens"] or {}, summary["weights"] or {}
    found = (
        Target("KV tokens, median |error|", tokens.get("median"), 0.04),
        Target("KV tokens, 90th percentile", tokens.get("p90"), 0.12),
        Target("weights, median |error|", weights.get("median"), 0.01),
        Target("recall of fits", summary["fits"]["recall"], 0.95, least=True),
        Target("recall of does not fit", summary["doesNotFit"]["recall"], 0.95, least=True),
        Target("rows over-promised by more than 5 %", summary["overPromised"]["share"], 0.03),
    )
    return [target.wire() for target in found]


def latency_targets(summary: Mapping, possible: Mapping) -> list[dict[str, object]]:
    """What is asked of the latency figures; ``possible`` leaves out rows faster than the hardware."""
    token, first = summary["timePerOutputToken"] or {}, summary["timeToFirstToken"] or {}
    at_30 = summary["verdicts"]["30ms"]
    found = (
        Target("time per output token, median |error|", token.get("median"), 0.12),
        Target("time to first token, median |error|", first.get("median"), 0.30),
        Target("orderings, every pair", summary["orderings"]["right"], 0.97, least=True),
        Target("orderings, without impossible rows", possible["orderings"]["right"], 0.97, least=True),
        Target("orderings, pairs more than 5 % apart", summary["orderings"]["rightApart"], 0.97, least=True),
        Target("false accepts at 30 ms", at_30["falseAccepts"], 0.05),
        Target("false rejects at 30 ms", at_30["falseRejects"], 0.10),
    )
    return [target.wire() for target in found]


def explained_verdicts(scores: Iterable[CapacityScore]) -> dict[str, str]:
    """The ledger of every start-up whose verdict was wrong, by row."""
    wrong = [score.row for score in scores if score.row.started not in {None, score.fits}]
    return {row.id: _ran_out(row) if row.started is False else _held_back(row) for row in wrong}


def _ran_out(row: CapacityRow) -> str:
    bench = bench_of(row)
    setting, outside = bench.setting, overhead_of(bench.setting, row.layout)
    total = setting.pool.gpu.memory_bytes
    layers = max(row.layout.partition)
    left = total - total * setting.utilization
    counted = {
        "context and channels": outside.start_bytes,
        "buffers after profiling": outside.unprofiled_bytes,
        "CUDA graphs": 0 if outside.subtracted else outside.graphs(layers),
        "slack": 0 if outside.subtracted else START_SLACK_BYTES,
    }
    parts = ", ".join(f"{name} {size / GIB:.2f}" for name, size in counted.items() if size)
    logged = "" if row.graphs is None else f" (graphs logged: {row.graphs:.2f})"
    spare = (left - sum(counted.values())) / GIB
    return (
        f"{row.model}: it fits by the profiler's own sum and ran out beside it. Beside the utilization are "
        f"{left / GIB:.2f} GiB; counted are {parts}{logged}, so that {spare:.2f} GiB would have to be taken "
        "by what no line of the log names"
    )


def _held_back(row: CapacityRow) -> str:
    bench = bench_of(row)
    fit, violation = bench.fit(row.layout), bench.legality.violation(row.layout)
    if violation is not None:
        return f"{row.model}: {violation}"
    stage = max(fit.stages, key=lambda part: part.missing)
    share = bench.setting.utilization
    higher = Workbench(replace(bench.setting, utilization=min(1.0, share + MORE))).fit(row.layout)
    parts = {
        f"weights{'' if row.weights is None else f' (logged {row.weights:.2f})'}": stage.weights,
        "activation": stage.activation,
        "overhead": stage.overhead,
        "margin": stage.margin,
    }
    ledger = ", ".join(f"{name} {size / GIB:.2f}" for name, size in parts.items())
    more = f"; at a utilization {MORE} higher it fits" if higher.fits else ""
    return (
        f"{row.model}: {stage.missing / GIB:.2f} GiB per GPU short at utilization {share:.2f}: {ledger}{more}"
    )


def wrong_orders(scores: Sequence[LatencyScore], impossible: Collection[str]) -> dict[str, object]:
    """Pairs in the wrong order: by model and system, and by what differs."""
    systems: dict[str, Counter[str]] = {}
    differing: Counter[str] = Counter()
    for one, other in pairs_of(scores):
        counts = systems.setdefault(f"{one.row.model} on {one.row.system}", Counter())
        counts["pairs"] += 1
        if (one.row.token_s < other.row.token_s) == (one.token_s < other.token_s):
            continue
        counts["wrong"] += 1
        if {one.row.id, other.row.id} & set(impossible):
            counts["wrongWithImpossibleRow"] += 1
            continue
        counts["wrongWithin5Percent"] += log_ratio(one, other) <= SAME_WITHIN
        counts["wrongWithin10Percent"] += log_ratio(one, other) <= 2 * SAME_WITHIN
        differing[" and ".join(_differences(one, other))] += 1
    return {
        "bySystem": {name: dict(counts) for name, counts in sorted(systems.items())},
        "byDifference": dict(differing.most_common()),
    }


def _differences(one: LatencyScore, other: LatencyScore) -> Iterator[str]:
    a, b = one.row, other.row
    if a.layout != b.layout:
        yield "sizes"
    if a.request.workload != b.request.workload:
        yield "tokens"
    if a.request.service_level != b.request.service_level:
        yield "concurrency"
