"""How the planner's constants are fitted, so that anyone can get them again from the published rows.

Latency: every constant of the calibrated roofline that ``PARAMETERS`` lists, one set for all models, by a
pattern search from physical starting values. The loss is the mean over models of the absolute logarithm of
predicted over measured time per output token, and a quarter as much of time to first token; a weak pull to
the starting values holds constants that the rows do not determine. Nothing here knows a model's name but to
leave it out.

Memory: the constants of engines.json by era, as medians over the rows that log the term. What only a handful
of rows tell (CUDA graphs, NCCL over PCIe, encoders) is stated with its rows in activation.py and not fitted.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cells import Unscored
from measured_rows import CapacityRow, LatencyRow, capacity_row, latency_row, read_rows

from shardwright_planner.engine import EngineMemory
from shardwright_planner.gpu import GIB
from shardwright_planner.latency import CALIBRATION, Calibration, Latency, LoadWork, StepClock
from shardwright_planner.setting import Setting, settings
from shardwright_planner.weights import WeightTable
from shardwright_planner.workbench import Workbench

# (constant, start, least, most). Starts are what a careful guess from data sheets would be.
PARAMETERS = (
    ("memory_efficiency", 0.80, 0.5, 0.92),
    ("cache_efficiency", 0.70, 0.3, 0.95),
    ("expert_memory_efficiency", 0.60, 0.3, 0.95),
    ("compute_efficiency", 0.70, 0.3, 0.95),
    ("narrow_efficiency", 0.60, 0.2, 0.85),
    ("expert_compute_efficiency", 0.30, 0.05, 0.95),
    ("attention_efficiency", 0.40, 0.1, 0.95),
    ("kernel_s", 5e-6, 1e-6, 20e-6),
    ("step_s", 500e-6, 50e-6, 5e-3),
    ("request_s", 10e-6, 1e-6, 100e-6),
    ("routing_spread", 0.90, 0.6, 1.0),
    ("nvlink_efficiency", 0.70, 0.2, 1.0),
    ("reduce_latency_s", 8e-6, 2e-6, 30e-6),
    ("front_s", 20e-3, 2e-3, 100e-3),
    ("wave_share", 0.15, 0.02, 0.5),
)
FIRST_WEIGHT = 1 / 4
PULL = 0.005
CLIP = 0.5  # of a row's logarithm: a few labels are wrong by a factor
STEPS = (0.4, 0.2, 0.1, 0.05, 0.025)
ROUNDS = 12
LEAST_GAIN = 2e-5
LARGE_VOCABULARY = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A measured point with its work already counted."""

    row: LatencyRow
    clock: StepClock
    work: LoadWork

    def latency(self, constants: Calibration) -> Latency:
        """What the planner predicts with these constants."""
        self.clock.calibration = constants
        return self.clock.latency_of(self.work)


def points(rows: Iterable[LatencyRow]) -> list[Point]:
    """Rows with their work counted once."""
    tables: dict[object, WeightTable] = {}
    found = []
    for row in rows:
        setting = settings(row.request)[0]
        key = (row.model, setting.model.quantization, setting.dtype_bytes)
        table = tables.setdefault(key, WeightTable(setting.model, setting.dtype_bytes, setting.engine))
        bench = Workbench(setting, table=table)
        load = setting.workload
        held = bench.fit(row.layout).concurrency(load.input_tokens + load.output_tokens // 2)
        clock = bench.clock(row.layout)
        found.append(Point(row=row, clock=clock, work=clock.work(held)))
    return found


def start() -> Calibration:
    """The constants that a fit begins with."""
    return replace(CALIBRATION, **{name: value for name, value, _, _ in PARAMETERS})


def loss(constants: Calibration, sample: Sequence[Point]) -> float:
    """Mean over models of the rows' clipped logarithms, and the pull to the start."""
    by_model: dict[str, list[float]] = {}
    for point in sample:
        predicted = point.latency(constants)
        error = min(CLIP, abs(math.log(predicted.token_s / point.row.token_s)))
        if point.row.first_s:
            error += FIRST_WEIGHT * min(CLIP, abs(math.log(predicted.first_s / point.row.first_s)))
        by_model.setdefault(point.row.model, []).append(error)
    pull = sum(math.log(getattr(constants, name) / value) ** 2 for name, value, _, _ in PARAMETERS)
    return statistics.mean(statistics.mean(errors) for errors in by_model.values()) + PULL * pull


def fit(sample: Sequence[Point]) -> Calibration:
    """The constants with the least loss; the same sample always gives the same ones.

    Pattern search (Hooke and Jeeves): each constant up and down in turn, then the whole move once more.
    """
    best = start()
    least = loss(best, sample)
    for step in STEPS:
        for _ in range(ROUNDS):
            before, base = least, best
            best, least = _explored(best, least, step, sample)
            if before - least < LEAST_GAIN:
                break
            leap = _extrapolated(base, best)
            found = loss(leap, sample)
            leap, found = _explored(leap, found, step, sample)
            if found < least:
                best, least = leap, found
    return replace(best, **{name: float(f"{getattr(best, name):.3g}") for name, *_ in PARAMETERS})


def _explored(
    best: Calibration, least: float, step: float, sample: Sequence[Point]
) -> tuple[Calibration, float]:
    for name, _, low, high in PARAMETERS:
        for factor in (1 + step, 1 / (1 + step)):
            value = min(high, max(low, getattr(best, name) * factor))
            candidate = replace(best, **{name: value})
            found = loss(candidate, sample)
            if found < least:
                best, least = candidate, found
                break
    return best, least


def _extrapolated(base: Calibration, best: Calibration) -> Calibration:
    moved = {}
    for name, _, low, high in PARAMETERS:
        old, new = getattr(base, name), getattr(best, name)
        moved[name] = min(high, max(low, new * new / old))
    return replace(best, **moved)


def folds(sample: Sequence[Point], beside: Sequence[Point] = ()) -> Iterable[tuple[str, Calibration]]:
    """(model, constants fitted on all other models), for each model of the sample."""
    for model in sorted({point.row.model for point in sample}):
        yield model, fit([point for point in (*sample, *beside) if point.row.model != model])


def readable(rows: Iterable, read: Callable) -> list:
    """Rows that can be scored."""
    found = []
    for row in rows:
        try:
            found.append(read(row))
        except Unscored:
            continue
    return found


def memory_overrides(rows: Sequence[CapacityRow]) -> dict[bool, EngineMemory]:
    """Memory constants of each era (keyed by ``workspace_kept``) as medians over the rows that log a term."""
    terms: dict[tuple[bool, str], list[float]] = {}
    known: dict[bool, EngineMemory] = {}
    for row in rows:
        setting = settings(row.request)[0]
        memory = setting.engine.memory
        known[memory.workspace_kept] = memory
        for name, value in _logged(row, setting):
            terms.setdefault((memory.workspace_kept, name), []).append(value)
    for (era, name), values in terms.items():
        middle = statistics.median(values)
        known[era] = replace(known[era], **{name: middle if name == "sampler_copies" else int(middle)})
    return known


def _logged(row: CapacityRow, setting: Setting) -> Iterable[tuple[str, float]]:
    memory, model, ranks = setting.engine.memory, setting.model, row.tensor * row.data
    if row.context is not None and row.pipeline == 1 and setting.pool.gpu.nvlink_domain > 1:
        if ranks > 1:
            yield "nccl_bytes", row.context * GIB - memory.nccl_rank_bytes * ranks
        else:
            yield "context_bytes", row.context * GIB
    plain = model.experts is None and model.tower is None and row.pipeline == 1
    # Small vocabularies leave the peak to the network, which says nothing about the sampler.
    if row.activation is not None and plain and model.vocab_size >= LARGE_VOCABULARY:
        hidden = setting.max_num_batched_tokens * model.hidden_size * setting.dtype_bytes
        logits = setting.max_num_seqs * model.vocab_size
        yield "sampler_copies", (row.activation * GIB - hidden - logits * setting.dtype_bytes) / (4 * logits)


def main(arguments: Sequence[str]) -> int:
    """Print the constants that the rows give."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    here = Path(__file__).parent / "published"
    parser.add_argument("--capacity", type=Path, default=here / "capacity.csv", help="start-up rows")
    parser.add_argument("--latency", type=Path, default=here / "latency.csv", help="serving rows")
    options = parser.parse_args(arguments)
    sample = points(readable(read_rows(options.latency), latency_row))
    fitted = fit(sample)
    rows = readable(read_rows(options.capacity), capacity_row)
    print(
        json.dumps(
            {
                "latency": {name: getattr(fitted, name) for name, *_ in PARAMETERS},
                "loss": round(loss(fitted, sample), 4),
                "memory": {
                    "from 0.17" if kept else "before 0.17": {
                        "samplerCopies": round(memory.sampler_copies, 2),
                        "contextGib": round(memory.context_bytes / GIB, 2),
                        "ncclGib": round(memory.nccl_bytes / GIB, 2),
                    }
                    for kept, memory in memory_overrides(rows).items()
                },
            },
            indent=1,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
