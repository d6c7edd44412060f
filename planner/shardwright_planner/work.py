"""What a step reads, computes and sends, before any efficiency: the part of a latency that is only counting.

Kept apart from the prices so that a calibration can be fitted by pricing the same work again and again.
Reading and arithmetic are in seconds at the data sheet's peak rates.
"""

import math
from collections import Counter
from dataclasses import dataclass

from shardwright_planner.layout import Layout
from shardwright_planner.model import Attention, LatentAttention, LayerKind, ModelFacts
from shardwright_planner.setting import Setting
from shardwright_planner.weights import KindCost, WeightTable, reduces_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one data rank computes in a step.

    ``context`` is the mean number of cached tokens that each new token attends to.
    """

    tokens: float
    requests: float
    context: float
    prompt: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWork:
    """One stage's share of a step; seconds at peak rates, and counts. ``times`` stages do the same."""

    times: int
    weights_s: float
    expert_s: float  # of one local expert of every sparse layer
    cache_s: float
    wide_s: float  # arithmetic in 16 bits
    narrow_s: float  # in 8 or 4 bits
    attention_s: float
    expert_compute_s: float  # at the 16-bit peak: small grouped products gain nothing from 8-bit units
    kernels: int
    sparse_layers: int
    reduces: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """All stages of a step with what they send; seconds at line rate.

    ``routed_tokens`` choose experts together: those of every data rank. ``reduce_rounds`` are how often the
    ranks wait for each other in one AllReduce.
    """

    stages: tuple[StageWork, ...]
    requests: float
    routed_tokens: float
    reduce_s: float  # of one AllReduce
    reduce_rounds: int
    send_s: float  # of one send
    exchange_s: float  # of one all-to-all
    sends: int


class WorkCounter:
    """Counts the work of one layout's steps."""

    def __init__(self, setting: Setting, table: WeightTable, layout: Layout) -> None:
        self.setting = setting
        self.table = table
        self.layout = layout
        self.costs = table.costs(layout)
        last = layout.pipeline - 1
        # Equal stages are counted once: (layers per kind, whether it is the last) and how often it occurs.
        self._stages = Counter(
            (counts, stage == last) for stage, counts in enumerate(table.stage_counts(layout.partition))
        )
        gpu = setting.pool.gpu
        self._bandwidth = gpu.bandwidth_bytes_per_s
        self._wide = gpu.flops_16bit
        scheme = setting.model.quantization
        self._narrow = None if scheme is None else scheme.flops(gpu)

    def step(self, batch: Batch) -> StepWork:
        """The work of one step over all stages."""
        layout = self.layout
        kinds = tuple(
            self._kind(kind, cost, batch)
            for kind, cost in zip(self.setting.model.kinds, self.costs, strict=True)
        )
        stages = tuple(
            self._stage(kinds, counts, is_last, times, batch)
            for (counts, is_last), times in self._stages.items()
        )
        reduce_s, rounds = self.reduce(batch.tokens)
        return StepWork(
            stages=stages,
            requests=batch.requests,
            routed_tokens=batch.tokens * layout.data,
            reduce_s=reduce_s,
            reduce_rounds=rounds,
            send_s=self.send_s(batch.tokens),
            exchange_s=self.exchange_s(batch.tokens),
            sends=layout.pipeline - 1,
        )

    def _stage(
        self, kinds: tuple["_Kind", ...], counts: tuple[int, ...], is_last: bool, times: int, batch: Batch
    ) -> StageWork:
        weights = cache = wide = narrow = attention = expert = expert_compute = 0.0
        kernels = sparse = reduces = 0
        for kind, cost, count in zip(kinds, self.costs, counts, strict=True):
            weights += count * kind.weights_s
            expert += count * kind.expert_s
            cache += count * kind.cache_s
            wide += count * kind.wide_s
            narrow += count * kind.narrow_s
            attention += count * kind.attention_s
            expert_compute += count * kind.expert_compute_s
            kernels += count * cost.kernels
            sparse += count if cost.local_experts else 0
            reduces += count * cost.reduces
        if is_last:
            head = self.table.head_bytes(self.layout.tensor)
            weights += head / self._bandwidth
            rows = batch.requests if batch.prompt else batch.tokens
            wide += 2.0 * rows * head / self.table.dtype_bytes / self._wide
        return StageWork(
            times=times,
            weights_s=weights,
            expert_s=expert,
            cache_s=cache,
            wide_s=wide,
            narrow_s=narrow,
            attention_s=attention,
            expert_compute_s=expert_compute,
            kernels=kernels,
            sparse_layers=sparse,
            reduces=reduces,
        )

    def _kind(self, kind: LayerKind, cost: KindCost, batch: Batch) -> "_Kind":
        tokens, layout = batch.tokens, self.layout
        expert = expert_compute = 0.0
        if cost.local_experts:
            moe = self.setting.model.experts
            assert moe is not None  # noqa: S101  a kind with experts implies it
            expert = cost.local_experts * cost.expert_bytes / self._bandwidth
            here = tokens * layout.data * moe.per_token / layout.expert_ranks
            expert_compute = here * cost.expert_operations / self._wide
        read, attention = attention_work(kind, self.setting, layout.tensor, batch)
        wide, narrow = cost.operations_16bit, cost.operations_narrow
        if self._narrow is None:
            # Weight-only kernels: FP8 on A100, FP4 on Hopper.
            wide, narrow = wide + narrow, 0.0
        return _Kind(
            weights_s=cost.read_bytes / self._bandwidth,
            expert_s=expert,
            cache_s=read / self._bandwidth,
            wide_s=tokens * wide / self._wide,
            narrow_s=tokens * narrow / (self._narrow or self._wide),
            attention_s=attention / self._wide,
            expert_compute_s=expert_compute,
        )

    def reduce(self, tokens: float) -> tuple[float, int]:
        """(seconds at line rate, rounds) of one AllReduce of the hidden state.

        Over NVLink vLLM reduces small messages in one round, in which every rank reads all others' whole,
        and larger ones in two, a share each and then all of them; elsewhere NCCL does it as a ring.
        """
        tensor, gpu = self.layout.tensor, self.setting.pool.gpu
        if tensor == 1:
            return 0.0, 0
        message = tokens * self.setting.model.hidden_size * self.setting.dtype_bytes
        ring = 2.0 * (tensor - 1) / tensor * message
        if self.layout.crosses_nodes:
            return ring / self.setting.nic_bytes_per_s, 1
        rate = gpu.link_bytes_per_s(tensor)
        if tensor > gpu.nvlink_domain:
            return ring / rate, 1
        if message < _one_round_bytes(tensor):
            return (tensor - 1) * message / rate, 1
        return ring / rate, 2

    def send_s(self, tokens: float) -> float:
        """One send of hidden state and residual to the next stage; every tensor rank sends its share."""
        size = 2.0 * tokens * self.setting.model.hidden_size * self.setting.dtype_bytes
        over_nodes = self.layout.nodes > 1
        return size / (
            self.setting.nic_bytes_per_s if over_nodes else self.setting.pool.gpu.link_bytes_per_s(2)
        )

    def exchange_s(self, tokens: float) -> float:
        """One all-to-all of the routed tokens; only data-parallel attention needs it."""
        layout, moe = self.layout, self.setting.model.experts
        if moe is None or layout.data == 1:
            return 0.0
        hidden = self.setting.model.hidden_size
        size = tokens * moe.per_token * hidden * self.setting.dtype_bytes / layout.tensor
        if layout.nodes > 1:
            return size / (self.setting.nic_bytes_per_s / layout.gpus_per_node)
        return size / self.setting.pool.gpu.link_bytes_per_s(layout.tensor * layout.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    weights_s: float
    expert_s: float
    cache_s: float
    wide_s: float
    narrow_s: float
    attention_s: float
    expert_compute_s: float


def _one_round_bytes(tensor: int) -> float:
    # csrc/custom_all_reduce.cuh; the step between the two shows in serving points of TP 4 and 8.
    if tensor == 2:
        return math.inf
    return 512 * 1024 if tensor <= 4 else 256 * 1024


LEAST_READ_BYTES = 2.0
"""Bytes of time per cached element: an 8-bit cache holds twice as much and was measured no faster (serving
points of an FP8 checkpoint whose cache is in 8 bits too)."""


def attention_work(kind: LayerKind, setting: Setting, tensor: int, batch: Batch) -> tuple[float, float]:
    """(bytes of cache read, operations) of one layer on one rank in one step."""
    element = max(setting.cache_bytes, LEAST_READ_BYTES)
    match kind.mixer:
        case Attention() as a:
            seen = min(batch.context, a.window) if a.window else batch.context
            per_token = max(1, a.kv_heads // tensor) * (a.head_dim + a.value_dim) * element
            operations = 2.0 * batch.tokens * seen * a.heads * (a.head_dim + a.value_dim) / tensor
        case LatentAttention() as a:
            seen = batch.context
            per_token = (a.kv_lora_rank + a.qk_rope_dim) * element
            expanded = a.qk_nope_dim + a.qk_rope_dim + a.value_dim
            absorbed = 2 * a.kv_lora_rank + a.qk_rope_dim
            width = expanded if batch.prompt else absorbed
            operations = 2.0 * batch.tokens * seen * a.heads * width / tensor
        case _:
            return 0.0, 0.0
    return batch.requests * seen * per_token, operations


def model_links(model: ModelFacts) -> int:
    """AllReduces of one step when TP > 1: one after each mixer and one after each feed-forward block."""
    per_kind = [reduces_of(kind) for kind in model.kinds]
    return sum(per_kind[kind] for kind in model.layers)
