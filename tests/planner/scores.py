"""What the planner says of published rows, and how far that is from what was measured.

Figures are relative errors of the planner's promise (safety margin included) against the log. A verdict is
what the plan would say: legal and it fits; or the high end of the range against the goal.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from calibration import Point, folds, memory_overrides
from measured_rows import CapacityRow, LatencyRow

from shardwright_planner import PlanInputError
from shardwright_planner.gpu import GIB
from shardwright_planner.latency import CALIBRATION
from shardwright_planner.setting import settings
from shardwright_planner.work import LEAST_READ_BYTES
from shardwright_planner.workbench import Workbench

OVER_PROMISED = 0.05
GOALS_S = (0.020, 0.030, 0.050)
SAME_WITHIN = 0.05  # measured times closer than this are told apart by chance alone


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityScore:
    """One start-up: relative errors (None where nothing was published) and verdicts."""

    row: CapacityRow
    weights: float | None
    available: float | None
    tokens: float | None
    fits: bool

    @property
    def capacity(self) -> float | None:
        """The error of the tokens, or of the GiB where no tokens were published."""
        return self.tokens if self.tokens is not None else self.available


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyScore:
    """One serving point: predicted seconds, and the high end that the verdict uses."""

    row: LatencyRow
    token_s: float | None
    first_s: float | None
    high_s: float | None


def capacity_score(row: CapacityRow, memory: Mapping[bool, object] | None = None) -> CapacityScore:
    """The planner's answer for a start-up; ``memory`` replaces the engine's memory constants by era."""
    try:
        bench, layout = bench_of(row, memory), row.layout
    except PlanInputError:
        return CapacityScore(row=row, weights=None, available=None, tokens=None, fits=False)
    setting = bench.setting
    violation = bench.legality.violation(layout) or bench.legality.capability_violation(setting.pool.gpu)
    if row.pipeline > setting.model.layer_count:
        return CapacityScore(row=row, weights=None, available=None, tokens=None, fits=False)
    fit = bench.fit(layout)
    heaviest = max(stage.weights for stage in fit.stages)
    # With a pipeline the logged figure is the first stage's.
    first = fit.rooms[0] - fit.stages[0].weights
    return CapacityScore(
        row=row,
        weights=_error(heaviest / GIB, row.weights),
        available=_error(first / GIB, row.available),
        tokens=_error(fit.tokens(setting.longest_tokens), row.tokens),
        fits=violation is None and fit.fits,
    )


def bench_of(row: CapacityRow, memory: Mapping[bool, object] | None = None) -> Workbench:
    """The planner's workbench for a start-up.

    Raises:
        PlanInputError: where the planner refuses the question.
    """
    setting = settings(row.request)[0]
    if memory:
        engine = setting.engine
        changed = memory.get(engine.memory.workspace_kept, engine.memory)
        setting = replace(setting, engine=replace(engine, memory=changed))
    return Workbench(setting)


def capacity_left_out(rows: Sequence[CapacityRow], beside: Sequence[CapacityRow] = ()) -> list[CapacityScore]:
    """Every row with memory constants fitted on the rows of all other architectures.

    ``beside`` are further rows to fit on.
    """
    found = []
    for shape in sorted({row.shape for row in rows}):
        others = memory_overrides([row for row in (*rows, *beside) if row.shape != shape])
        found += [capacity_score(row, others) for row in rows if row.shape == shape]
    return found


def capacity_summary(scores: Sequence[CapacityScore]) -> dict[str, object]:
    """Errors, over-promised share and recalls."""
    promised = [s.capacity for s in scores if s.capacity is not None]
    started = [s for s in scores if s.row.started]
    refused = [s for s in scores if s.row.started is False]
    return {
        "rows": len(scores),
        "weights": errors(s.weights for s in scores),
        "availableGib": errors(s.available for s in scores),
        "kvTokens": errors(s.tokens for s in scores),
        "overPromised": {
            "rows": sum(value > OVER_PROMISED for value in promised),
            "of": len(promised),
            "share": share(sum(value > OVER_PROMISED for value in promised), len(promised)),
        },
        "fits": {"right": sum(s.fits for s in started), "of": len(started)}
        | {"recall": share(sum(s.fits for s in started), len(started))},
        "doesNotFit": {"right": sum(not s.fits for s in refused), "of": len(refused)}
        | {"recall": share(sum(not s.fits for s in refused), len(refused))},
    }


def latency_scores(sample: Sequence[Point], constants=CALIBRATION) -> list[LatencyScore]:
    """Every point with one set of constants."""
    found = []
    for point in sample:
        latency = point.latency(constants)
        found.append(
            LatencyScore(
                row=point.row,
                token_s=latency.token_s,
                first_s=latency.first_s,
                high_s=latency.token_range_s[1],
            )
        )
    return found


def latency_left_out(sample: Sequence[Point], beside: Sequence[Point] = ()) -> list[LatencyScore]:
    """Every point with constants fitted on the points of all other models.

    ``beside`` are further points to fit on.
    """
    found = []
    for model, constants in folds(sample, beside):
        found += latency_scores([point for point in sample if point.row.model == model], constants)
    return found


def is_impossible(point: Point) -> bool:
    """Whether a point was measured faster than reading weights and cache once takes at the peak rate."""
    narrow = min(1.0, point.clock.setting.cache_bytes / LEAST_READ_BYTES)
    stages = point.work.decode.stages
    return point.row.token_s < sum(s.times * (s.weights_s + narrow * s.cache_s) for s in stages)


def peer_scores(rows: Iterable[LatencyRow], name: str) -> list[LatencyScore]:
    """What another predictor in the file says; its verdict has no margin."""
    return [
        LatencyScore(
            row=row, token_s=row.peers[name][0], first_s=row.peers[name][1], high_s=row.peers[name][0]
        )
        for row in rows
    ]


def latency_summary(scores: Sequence[LatencyScore]) -> dict[str, object]:
    """Errors, orderings and verdicts."""
    known = [s for s in scores if s.token_s is not None]
    everything, right = _orderings(known, 0.0)
    apart, right_apart = _orderings(known, SAME_WITHIN)
    return {
        "rows": len(known),
        "timePerOutputToken": errors(_error(s.token_s, s.row.token_s) for s in known),
        "timeToFirstToken": errors(_error(s.first_s, s.row.first_s) for s in known),
        "orderings": {
            "pairs": everything,
            "right": share(right, everything),
            "pairsApart": apart,
            "rightApart": share(right_apart, apart),
        },
        "verdicts": {f"{goal * 1e3:.0f}ms": _verdicts(known, goal) for goal in GOALS_S},
    }


def _verdicts(scores: Sequence[LatencyScore], goal_s: float) -> dict[str, object]:
    slow = [s for s in scores if s.row.token_s > goal_s]
    quick = [s for s in scores if s.row.token_s <= goal_s]
    accepted = sum(s.high_s <= goal_s for s in slow)
    refused = sum(s.high_s > goal_s for s in quick)
    return {
        "violations": len(slow),
        "falseAccepts": share(accepted, len(slow)),
        "met": len(quick),
        "falseRejects": share(refused, len(quick)),
    }


def _orderings(scores: Sequence[LatencyScore], within: float) -> tuple[int, int]:
    pairs = right = 0
    for one, other in pairs_of(scores):
        if log_ratio(one, other) > within:
            pairs += 1
            right += (one.row.token_s < other.row.token_s) == (one.token_s < other.token_s)
    return pairs, right


def pairs_of(scores: Sequence[LatencyScore]) -> Iterator[tuple[LatencyScore, LatencyScore]]:
    """Every two points of one model and system that were measured apart.

    Some points are in the file several times; a pair of questions counts once.
    """
    distinct = list({score.row.question: score for score in scores}.values())
    for index, one in enumerate(distinct):
        for other in distinct[:index]:
            same = one.row.model == other.row.model and one.row.system == other.row.system
            if same and one.row.token_s != other.row.token_s:
                yield one, other


def log_ratio(one: LatencyScore, other: LatencyScore) -> float:
    """How far two measured times are apart, as the absolute logarithm of their ratio."""
    return abs(math.log(one.row.token_s / other.row.token_s))


def grouped(scores: Sequence, key: Callable) -> dict[str, list]:
    """Scores by a key of their row, in order of the keys."""
    found: dict[str, list] = {}
    for score in sorted(scores, key=lambda s: str(key(s.row))):
        found.setdefault(str(key(score.row)), []).append(score)
    return found


def errors(values: Iterable[float | None]) -> dict[str, float | int] | None:
    """Count, median and 90th percentile of the absolute values, and the median with its sign."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    ordered = sorted(map(abs, known))
    return {
        "rows": len(known),
        "median": round(statistics.median(ordered), 4),
        "p90": round(ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))], 4),
        "bias": round(statistics.median(known), 4),
    }


def share(part: int, whole: int) -> float | None:
    """A share with four digits; None of nothing."""
    return round(part / whole, 4) if whole else None


def _error(predicted: float | None, measured: float | None) -> float | None:
    # A relative error needs something positive to relate to: logs of failed starts say -1.44 GiB.
    if predicted is None or measured is None or measured <= 0:
        return None
    return predicted / measured - 1.0
