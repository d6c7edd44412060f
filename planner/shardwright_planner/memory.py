"""Memory of every stage's GPUs, and how many cached tokens that leaves.

The identity is vLLM's own (v1/worker/gpu_worker.py): what the engine may use, less weights, peak activation,
what CUDA and NCCL hold, and CUDA graphs, is the KV cache; the stage with the fewest blocks sets the number
for all.
"""

import math
from dataclasses import dataclass

from shardwright_planner.gpu import GIB
from shardwright_planner.kvcache import CacheLayout
from shardwright_planner.layout import Layout
from shardwright_planner.partition import stage_ranges
from shardwright_planner.setting import Setting
from shardwright_planner.weights import WeightTable

# The dummy sampler run holds this many copies of the logits in 32 bits (fitted on 51 start-up logs of 0.19).
SAMPLER_COPIES = 3.7
# Held outside PyTorch: the CUDA context alone, and with NCCL and custom AllReduce buffers (same logs).
CONTEXT_BYTES = int(0.25 * GIB)
CONTEXT_WITH_NCCL_BYTES = int(2.1 * GIB)
# CUDA graphs at the default capture sizes: measured 0.5 to 1.9 GiB, growing with the layers of a stage;
# sparse models hold the upper figures (same logs).
GRAPH_BYTES = int(0.55 * GIB)
GRAPH_LAYER_BYTES = int(0.0115 * GIB)
GRAPH_EXPERTS_BYTES = int(0.5 * GIB)
MARGIN = 0.03  # of what the engine may use; kept unplanned


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
        """Cached tokens as the engine's log states them, for all data ranks."""
        if self.cache.is_uniform:
            return self.blocks * self.cache.block_tokens * self.data
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
    allowed = math.ceil(setting.pool.gpu.memory_bytes * setting.utilization)
    margin = int(allowed * MARGIN)
    activations = activation_bytes(setting, layout)
    fixed, per_layer = overhead_bytes(setting, layout)
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
            activation = activations[stage == last]
            overhead = fixed + per_layer * (stop - start)
            row = known[key] = _Room(
                layers=stop - start,
                weights=weights,
                activation=activation,
                overhead=overhead,
                cache=allowed - margin - overhead - weights - activation,
                block=cache.block_bytes(start, stop),
            )
        rows.append(row)
    blocks = max(0, min((row.cache // row.block for row in rows if row.block), default=wanted))
    total = setting.pool.gpu.memory_bytes
    made = {
        id(row): StageMemory(
            layers=row.layers,
            weights=row.weights,
            cache=blocks * row.block,
            activation=row.activation,
            overhead=row.overhead,
            margin=margin,
            free=max(0, total - row.used - margin - blocks * row.block),
            missing=max(0, wanted * row.block - row.cache),
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
        rooms=tuple(row.cache + row.weights for row in rows),
    )


def in_flight_tokens(setting: Setting, layout: Layout) -> int:
    """Tokens scheduled ahead while a window is not freed yet: one step more than there are stages."""
    return (layout.pipeline + 1) * setting.max_num_batched_tokens


def activation_bytes(setting: Setting, layout: Layout) -> tuple[int, int]:
    """Peak activation of every stage (hidden states of a full step, expert workspace), and of the last one.

    The last stage holds the sampler's logits besides, which outweigh the network's own activations.
    """
    model, tokens = setting.model, setting.max_num_batched_tokens
    size = tokens * model.hidden_size * setting.dtype_bytes
    moe = model.experts
    if moe is not None and not (model.quantization and model.quantization.experts_only):
        width = moe.intermediate // layout.expert_tensor
        inward = max(2 * width, model.hidden_size) + max(width, model.hidden_size)
        size += tokens * moe.per_token * inward * setting.dtype_bytes
    rows = min(setting.max_num_seqs, tokens)
    return size, size + int(SAMPLER_COPIES * rows * model.vocab_size * 4)


def overhead_bytes(setting: Setting, layout: Layout) -> tuple[int, int]:
    """CUDA context, NCCL buffers and, where the version subtracts them, CUDA graphs: (fixed, per layer)."""
    split = layout.tensor > 1 or layout.data > 1
    context = CONTEXT_WITH_NCCL_BYTES if split else CONTEXT_BYTES
    if not setting.engine.graphs_subtracted:
        return context, 0
    experts = GRAPH_EXPERTS_BYTES if setting.model.is_moe else 0
    return context + GRAPH_BYTES + experts, GRAPH_LAYER_BYTES
