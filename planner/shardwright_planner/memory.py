"""Memory of every stage's GPUs, and how many cached tokens that leaves.

The identity is vLLM's own (v1/worker/gpu_worker.py): what the engine may use, less weights, peak activation,
what CUDA and NCCL hold, and CUDA graphs, is the KV cache; the stage with the fewest blocks sets the number
for all.
"""

import math
from dataclasses import dataclass

from shardwright_planner.activation import activation_bytes, overhead_of
from shardwright_planner.kvcache import CacheLayout
from shardwright_planner.layout import Layout
from shardwright_planner.partition import stage_ranges
from shardwright_planner.setting import Setting
from shardwright_planner.weights import WeightTable

# Kept unplanned, as shares of what the engine may use. Engines and families whose start-ups were published
# are foreseen within 0.5 % of it; nothing was published for the newest ones.
MARGIN_MEASURED = 0.01
MARGIN = 0.02
MARGIN_UNCHECKED = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes on each GPU of one stage. ``cache`` is the pool in use, ``missing`` what the goal lacks."""

    layers: int
    weights: int
    cache: int
    activation: int
    overhead: int
    margin: int
    free: int
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Whether a layout holds the goal, and what it holds."""

    stages: tuple[StageMemory, ...]
    cache: CacheLayout
    blocks: int  # per rank, the null block among them
    data: int
    missing_bytes: int
    weights_fit: bool
    in_flight_tokens: int
    max_position: int
    logs_request_tokens: bool
    rooms: tuple[int, ...]  # per stage, bytes for weights and cache together

    @property
    def fits(self) -> bool:
        """Whether weights, the longest request and the stated concurrency fit."""
        return self.missing_bytes == 0

    def concurrency(self, tokens: int) -> float:
        """Requests of that length that the replica holds at once in steady decoding."""
        return max(0, self.blocks - 1) / self.cache.request_blocks(tokens) * self.data

    def longest_request(self) -> int:
        """The longest request that the engine would admit, up to the model's own limit."""
        low, high = 0, self.max_position
        while low < high:
            middle = (low + high + 1) // 2
            if self.cache.request_blocks(middle, self.in_flight_tokens) <= self.blocks - 1:
                low = middle
            else:
                high = middle - 1
        return low

    def tokens(self, max_model_length: int) -> int:
        """Cached tokens as the engine's log states them, for all data ranks.

        Mixed groups have no one number: older versions share the blocks out among the groups, newer ones
        state how many requests of the longest length fit, times that length.
        """
        if self.cache.is_uniform:
            return self.blocks * self.cache.block_tokens * self.data
        if not self.logs_request_tokens:
            return self.blocks // len(self.cache.groups) * self.cache.block_tokens * self.data
        per_request = self.cache.request_blocks(max_model_length, self.in_flight_tokens)
        return int(self.blocks / per_request * max_model_length) * self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """One stage before the number of blocks is known; ``cache`` may be negative."""

    layers: int
    weights: int
    activation: int
    overhead: int
    cache: int
    block: int

    @property
    def used(self) -> int:
        return self.weights + self.activation + self.overhead


def assess(setting: Setting, table: WeightTable, cache: CacheLayout, layout: Layout) -> Fit:
    """Memory of a layout, stage by stage, against the longest request and the stated concurrency."""
    model = setting.model
    in_flight = in_flight_tokens(setting, layout)
    concurrency = -(-setting.service_level.concurrency // layout.data)
    wanted = 1 + max(
        cache.request_blocks(setting.longest_tokens, in_flight),
        cache.request_blocks(setting.context_tokens) * concurrency,
    )
    total = setting.pool.gpu.memory_bytes
    requested = math.ceil(total * setting.utilization)
    margin = int(requested * margin_share(setting, layout))
    activations = activation_bytes(setting, table, layout)
    outside = overhead_of(setting, layout)
    overrun = 0
    rows: list[_Room] = []
    known: dict[tuple[object, ...], _Room] = {}  # equal stages are counted once: there may be 64 of them
    last = layout.pipeline - 1
    for stage, ((start, stop), counts) in enumerate(
        zip(stage_ranges(layout.partition), table.stage_counts(layout.partition), strict=True)
    ):
        key = (counts, stage == 0, stage == last, 0 if cache.is_uniform else start)
        row = known.get(key)
        if row is None:
            weights = table.stage_bytes(layout, stage, counts)
            activation = activations[2 if stage == last else min(stage, 1)]
            overhead = outside.counted(stop - start)
            overrun = max(overrun, requested + outside.beside(stop - start) - total)
            row = known[key] = _Room(
                layers=stop - start,
                weights=weights,
                activation=activation,
                overhead=overhead,
                cache=requested - margin - overhead - weights - activation,
                block=cache.block_bytes(start, stop),
            )
        rows.append(row)
    blocks = max(0, min((row.cache // row.block for row in rows if row.block), default=wanted))
    made = {
        id(row): StageMemory(
            layers=row.layers,
            weights=row.weights,
            cache=blocks * row.block,
            activation=row.activation,
            overhead=row.overhead,
            margin=margin,
            free=max(0, total - row.used - margin - blocks * row.block),
            missing=max(0, wanted * row.block - row.cache, overrun),
        )
        for row in known.values()
    }
    stages = tuple(made[id(row)] for row in rows)
    return Fit(
        stages=stages,
        cache=cache,
        blocks=blocks,
        data=layout.data,
        missing_bytes=max(stage.missing for stage in stages),
        weights_fit=all(row.cache > 0 for row in rows),
        in_flight_tokens=in_flight,
        max_position=model.max_position,
        logs_request_tokens=setting.engine.logs_request_tokens,
        rooms=tuple(row.cache + row.weights for row in rows),
    )


def in_flight_tokens(setting: Setting, layout: Layout) -> int:
    """Tokens scheduled ahead while a window is not freed yet.

    One step, and where the engine counts its overlapping steps one more than there are stages.
    """
    steps = layout.pipeline + 1 if setting.engine.counts_steps_ahead else 1
    return steps * setting.max_num_batched_tokens


def margin_share(setting: Setting, layout: Layout) -> float:
    """Share of what the engine may use that stays unplanned, by how well such a start-up was measured."""
    checked = setting.model.confidence == "high" and layout.data == 1
    if not checked:
        return MARGIN_UNCHECKED
    return MARGIN_MEASURED if setting.engine.memory_measured else MARGIN
