"""Time of one step by a calibrated roofline, and the latencies that follow at a steady load.

A step costs the larger of what it reads and what it computes, plus launches per layer, plus communication.
The constants were fitted on measured vLLM points of H100 and H200, one set for all models: a constant per
model would only memorise the points. With a pipeline they are unmeasured, since next to no public points
have more than one stage.
"""

import math
from collections import Counter
from dataclasses import dataclass

from shardwright_planner.layout import Layout
from shardwright_planner.model import Attention, LatentAttention, LayerKind, ModelFacts
from shardwright_planner.setting import Setting
from shardwright_planner.weights import KindCost, WeightTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Efficiencies and fixed costs, in shares and seconds."""

    memory_efficiency: float = 0.80
    expert_memory_efficiency: float = 0.51
    compute_efficiency: float = 0.75
    layer_s: float = 60e-6
    step_s: float = 170e-6
    request_s: float = 5e-6
    nvlink_efficiency: float = 0.45
    reduce_latency_s: float = 6e-6
    pcie_reduce_latency_s: float = 20e-6
    network_reduce_latency_s: float = 60e-6
    network_efficiency: float = 0.7
    send_latency_s: float = 10e-6
    front_s: float = 0.045
    wave_share: float = 0.15  # requests that meet others' prompts in one wave; closed loops keep them bunched
    token_low: float = 0.85  # ends of the predicted range, as factors of the mean
    token_high: float = 1.15
    first_low: float = 0.70
    first_high: float = 1.35


CALIBRATION = Calibration()


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
class Step:
    """Seconds of one step by term; the total counts the larger of reading and computing per stage."""

    weights_s: float
    cache_s: float
    compute_s: float
    bound_s: float  # sum over stages of max(reading, computing)
    launch_s: float
    reduce_s: float
    send_s: float
    exchange_s: float

    @property
    def total_s(self) -> float:
        """Seconds from the first stage's start to the last stage's end."""
        return self.bound_s + self.launch_s + self.reduce_s + self.send_s + self.exchange_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Predicted behaviour of one replica at the stated concurrency."""

    decode: Step
    prefill_s: float  # of one request alone
    interference_s: float  # of other requests' prefill, per output token
    token_s: float
    first_s: float
    token_range_s: tuple[float, float]
    first_range_s: tuple[float, float]
    prefill_share: float
    tokens_per_second: float
    requests_per_second: float


class StepClock:
    """Times steps of one layout."""

    def __init__(
        self, setting: Setting, table: WeightTable, layout: Layout, calibration: Calibration = CALIBRATION
    ) -> None:
        self.setting = setting
        self.layout = layout
        self.calibration = calibration
        self.costs = table.costs(layout)
        self.table = table
        last = layout.pipeline - 1
        # Equal stages are timed once: (layers per kind, whether it is the last) and how often it occurs.
        self.stages = Counter(
            (counts, stage == last) for stage, counts in enumerate(table.stage_counts(layout.partition))
        )
        gpu = setting.pool.gpu
        self._wide = gpu.flops_16bit * calibration.compute_efficiency
        self._narrow = (gpu.flops_8bit or gpu.flops_16bit) * calibration.compute_efficiency
        self._bandwidth = gpu.bandwidth_bytes_per_s

    def step(self, batch: Batch) -> Step:
        """One step over all stages."""
        computing = bound = launch = reduce = exchange = weights_s = cache_s = 0.0
        c, layout = self.calibration, self.layout
        tokens, requests = batch.tokens, batch.requests
        reduce_once, exchange_once = self.reduce_s(tokens), self.exchange_s(tokens)
        kinds = tuple(
            self._kind(kind, cost, batch)
            for kind, cost in zip(self.setting.model.kinds, self.costs, strict=True)
        )
        for (counts, is_last), times in self.stages.items():
            weights = cache = compute = 0.0
            for (kind_weights, kind_cache, kind_compute), cost, count in zip(
                kinds, self.costs, counts, strict=True
            ):
                weights += count * kind_weights
                cache += count * kind_cache
                compute += count * kind_compute
                launch += times * count * c.layer_s
                reduce += times * count * cost.reduces * reduce_once
                exchange += times * count * 2 * exchange_once if cost.local_experts else 0.0
            if is_last:
                head = self.table.head_bytes(layout.tensor)
                weights += head / (self._bandwidth * c.memory_efficiency)
                rows = requests if batch.prompt else tokens
                compute += 2.0 * rows * head / self.table.dtype_bytes / self._wide
            weights_s += times * weights
            cache_s += times * cache
            computing += times * compute
            bound += times * max(weights + cache, compute)
        launch += c.step_s + c.request_s * requests
        return Step(
            weights_s=weights_s,
            cache_s=cache_s,
            compute_s=computing,
            bound_s=bound,
            launch_s=launch,
            reduce_s=reduce,
            send_s=(layout.pipeline - 1) * self.send_s(tokens),
            exchange_s=exchange,
        )

    def _kind(self, kind: LayerKind, cost: KindCost, batch: Batch) -> tuple[float, float, float]:
        c, layout = self.calibration, self.layout
        weights = cost.read_bytes / (self._bandwidth * c.memory_efficiency)
        tokens = batch.tokens
        compute = tokens * (cost.operations_16bit / self._wide + cost.operations_8bit / self._narrow)
        if cost.local_experts:
            moe = self.setting.model.experts
            assert moe is not None  # noqa: S101  a kind with experts implies it
            everyone = tokens * layout.data
            touched = cost.local_experts * (1.0 - (1.0 - moe.per_token / moe.count) ** everyone)
            weights += touched * cost.expert_bytes / (self._bandwidth * c.expert_memory_efficiency)
            peak = self._narrow if cost.expert_is_8bit else self._wide
            here = everyone * moe.per_token / layout.expert_ranks
            compute += here * cost.expert_operations / peak
        read, attention = attention_work(kind, self.setting, layout.tensor, batch)
        cache = read / (self._bandwidth * c.memory_efficiency)
        return weights, cache, compute + attention / self._wide

    def reduce_s(self, tokens: float) -> float:
        """One AllReduce of the hidden state, as a ring."""
        tensor = self.layout.tensor
        if tensor == 1:
            return 0.0
        message = tokens * self.setting.model.hidden_size * self.setting.dtype_bytes
        rate, latency = self._reduce_link()
        return latency + 2.0 * (tensor - 1) / tensor * message / rate

    def _reduce_link(self) -> tuple[float, float]:
        c, gpu, layout = self.calibration, self.setting.pool.gpu, self.layout
        if layout.crosses_nodes:
            return self.setting.nic_bytes_per_s * c.network_efficiency, c.network_reduce_latency_s
        rate = gpu.link_bytes_per_s(layout.tensor) * c.nvlink_efficiency
        on_nvlink = layout.tensor <= gpu.nvlink_domain
        return rate, c.reduce_latency_s if on_nvlink else c.pcie_reduce_latency_s

    def send_s(self, tokens: float) -> float:
        """One send of hidden state and residual to the next stage; every tensor rank sends its share."""
        c, layout = self.calibration, self.layout
        size = 2.0 * tokens * self.setting.model.hidden_size * self.setting.dtype_bytes
        if layout.nodes > 1:
            rate = self.setting.nic_bytes_per_s * c.network_efficiency
        else:
            rate = self.setting.pool.gpu.link_bytes_per_s(2) * c.nvlink_efficiency
        return c.send_latency_s + size / rate

    def exchange_s(self, tokens: float) -> float:
        """One all-to-all of the routed tokens; only data-parallel attention needs it."""
        layout, moe = self.layout, self.setting.model.experts
        if moe is None or layout.data == 1:
            return 0.0
        c, hidden = self.calibration, self.setting.model.hidden_size
        size = tokens * moe.per_token * hidden * self.setting.dtype_bytes / layout.tensor
        if layout.nodes > 1:
            rate = self.setting.nic_bytes_per_s * c.network_efficiency / layout.gpus_per_node
            return c.network_reduce_latency_s + size / rate
        rate = self.setting.pool.gpu.link_bytes_per_s(layout.tensor * layout.data) * c.nvlink_efficiency
        return 2.0 * c.reduce_latency_s + size / rate

    def latency(self) -> Latency:
        """Latencies at the stated steady concurrency."""
        setting, layout, c = self.setting, self.layout, self.calibration
        load, stages = setting.workload, layout.pipeline
        batch = max(1.0, setting.service_level.concurrency / layout.data)
        in_batch = max(1.0, batch / stages)
        context = load.input_tokens + load.output_tokens / 2
        decode = self.step(Batch(tokens=in_batch, requests=in_batch, context=context, prompt=False))
        chunk = min(load.input_tokens, setting.max_num_batched_tokens)
        chunks = -(-load.input_tokens // setting.max_num_batched_tokens)
        prefill = self._prompt(chunk, 1.0) * chunks
        interference = (batch - 1.0) / load.output_tokens * prefill / stages
        token = decode.total_s + interference
        burst = self._burst(batch)
        first = prefill + c.wave_share * burst + decode.total_s + c.front_s
        busy = batch * prefill / stages
        request = first + load.output_tokens * token
        return Latency(
            decode=decode,
            prefill_s=prefill,
            interference_s=interference,
            token_s=token,
            first_s=first,
            token_range_s=(token * c.token_low, token * c.token_high),
            first_range_s=(first * c.first_low, max(first * c.first_high, burst + c.front_s)),
            prefill_share=busy / (load.output_tokens * decode.total_s + busy),
            tokens_per_second=batch * layout.data * load.output_tokens / request,
            requests_per_second=batch * layout.data / request,
        )

    def _prompt(self, tokens: float, requests: float) -> float:
        context = self.setting.workload.input_tokens / 2
        return self.step(Batch(tokens=tokens, requests=requests, context=context, prompt=True)).total_s

    def _burst(self, batch: float) -> float:
        # All requests at once: prompts are worked off in full steps, and the mean request waits for half of
        # them. With a pipeline the steps overlap, one stage behind the other.
        load, limit = self.setting.workload, self.setting.max_num_batched_tokens
        steps = math.ceil(batch * load.input_tokens / limit)
        size = min(limit, batch * load.input_tokens)
        one = self._prompt(size, max(1.0, size / load.input_tokens))
        return one * ((steps - 1) / 2 / self.layout.pipeline + 1.0)


def attention_work(kind: LayerKind, setting: Setting, tensor: int, batch: "Batch") -> tuple[float, float]:
    """(bytes of cache read, operations) of one layer on one rank in one step."""
    match kind.mixer:
        case Attention() as a:
            seen = min(batch.context, a.window) if a.window else batch.context
            per_token = max(1, a.kv_heads // tensor) * (a.head_dim + a.value_dim) * setting.cache_bytes
            operations = 2.0 * batch.tokens * seen * a.heads * (a.head_dim + a.value_dim) / tensor
        case LatentAttention() as a:
            seen = batch.context
            per_token = (a.kv_lora_rank + a.qk_rope_dim) * setting.cache_bytes
            expanded = a.qk_nope_dim + a.qk_rope_dim + a.value_dim
            absorbed = 2 * a.kv_lora_rank + a.qk_rope_dim
            width = expanded if batch.prompt else absorbed
            operations = 2.0 * batch.tokens * seen * a.heads * width / tensor
        case _:
            return 0.0, 0.0
    return batch.requests * seen * per_token, operations


def model_links(model: ModelFacts) -> int:
    """AllReduces of one step when TP > 1: one after each mixer and one after each feed-forward block."""
    per_kind = [(k.mixer is not None) + (k.feed_forward is not None) for k in model.kinds]
    return sum(per_kind[kind] for kind in model.layers)
