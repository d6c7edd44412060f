"""Time of one step by a calibrated roofline, and the latencies that follow at a steady load.

A step costs the larger of what it reads and what it computes, plus launches per layer, plus communication.
The constants are fitted by tests/planner/calibration.py on measured vLLM points of H100 and H200, one set for
all models: a constant per model would only memorise the points. With a pipeline they are unmeasured, since
next to no public points have more than one stage.
"""

import math
from dataclasses import dataclass

from shardwright_planner.layout import Layout
from shardwright_planner.setting import Setting
from shardwright_planner.weights import WeightTable
from shardwright_planner.work import Batch, StageWork, StepWork, WorkCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Efficiencies as shares of peak rates, and fixed costs in seconds."""

    memory_efficiency: float = 0.857
    cache_efficiency: float = 0.710
    expert_memory_efficiency: float = 0.805
    compute_efficiency: float = 0.642
    narrow_efficiency: float = 0.829
    expert_compute_efficiency: float = 0.230
    attention_efficiency: float = 0.438
    kernel_s: float = 4.13e-6
    step_s: float = 406e-6
    request_s: float = 10.2e-6
    # Tokens agree on experts more than chance has it: n of them touch as many as n**spread that do not.
    routing_spread: float = 1.0
    nvlink_efficiency: float = 0.783
    reduce_latency_s: float = 6.94e-6  # per round
    pcie_reduce_latency_s: float = 20e-6
    network_reduce_latency_s: float = 60e-6
    network_efficiency: float = 0.7
    tcp_efficiency: float = 0.4  # without RDMA: copies through the host's memory; not measured
    send_latency_s: float = 10e-6
    front_s: float = 0.0234
    wave_share: float = (
        0.158  # requests that meet others' prompts in one wave; closed loops keep them bunched
    )
    token_low: float = 0.85  # ends of the predicted range, as factors of the mean
    token_high: float = 1.08
    first_low: float = 0.70
    first_high: float = 1.35


CALIBRATION = Calibration()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWork:
    """The work that a replica's latencies are made of: one decode step, one prompt, one step of a burst."""

    decode: StepWork
    prompt: StepWork  # one chunk of a request's prompt
    chunks: int
    burst: StepWork
    burst_steps: int
    batch: float  # requests of one data rank that run at once
    queued: float  # requests that wait for each of them, because the cache holds no more


class StepClock:
    """Times steps of one layout."""

    def __init__(
        self, setting: Setting, table: WeightTable, layout: Layout, calibration: Calibration = CALIBRATION
    ) -> None:
        self.setting = setting
        self.layout = layout
        self.calibration = calibration
        self.counter = WorkCounter(setting, table, layout)

    @property
    def _network(self) -> float:
        c = self.calibration
        return c.tcp_efficiency if self.setting.pool.rdma is False else c.network_efficiency

    def step(self, batch: Batch) -> Step:
        """One step over all stages."""
        return self.priced(self.counter.step(batch))

    def priced(self, work: StepWork) -> Step:
        """The time of counted work."""
        c = self.calibration
        weights_s = cache_s = computing = bound = launch = 0.0
        reduces = sparse = 0
        touched = self._touched(work.routed_tokens)
        for stage in work.stages:
            weights = stage.weights_s / c.memory_efficiency
            weights += touched * stage.expert_s / c.expert_memory_efficiency
            cache = stage.cache_s / c.cache_efficiency
            compute = _compute_s(stage, c)
            weights_s += stage.times * weights
            cache_s += stage.times * cache
            computing += stage.times * compute
            bound += stage.times * max(weights + cache, compute)
            launch += stage.times * stage.kernels * c.kernel_s
            reduces += stage.times * stage.reduces
            sparse += stage.times * stage.sparse_layers
        return Step(
            weights_s=weights_s,
            cache_s=cache_s,
            compute_s=computing,
            bound_s=bound,
            launch_s=launch + c.step_s + c.request_s * work.requests,
            reduce_s=reduces * self._reduced_s(work.reduce_s, work.reduce_rounds),
            send_s=work.sends * self._sent_s(work.send_s),
            exchange_s=2 * sparse * self._exchanged_s(work.exchange_s),
        )

    def _touched(self, tokens: float) -> float:
        # Share of the experts that a step reads.
        moe = self.setting.model.experts
        if moe is None:
            return 0.0
        spread = tokens**self.calibration.routing_spread if tokens > 1 else tokens
        return float(1.0 - (1.0 - moe.per_token / moe.count) ** spread)

    def reduce_s(self, tokens: float) -> float:
        """One AllReduce of the hidden state."""
        return self._reduced_s(*self.counter.reduce(tokens))

    def send_s(self, tokens: float) -> float:
        """One send of hidden state and residual to the next stage."""
        return self._sent_s(self.counter.send_s(tokens))

    def exchange_s(self, tokens: float) -> float:
        """One all-to-all of the routed tokens."""
        return self._exchanged_s(self.counter.exchange_s(tokens))

    def _reduced_s(self, ideal: float, rounds: int) -> float:
        c, layout = self.calibration, self.layout
        if layout.crosses_nodes:
            return rounds * c.network_reduce_latency_s + ideal / self._network
        on_nvlink = layout.tensor <= self.setting.pool.gpu.nvlink_domain
        latency = c.reduce_latency_s if on_nvlink else c.pcie_reduce_latency_s
        return rounds * latency + ideal / c.nvlink_efficiency

    def _sent_s(self, ideal: float) -> float:
        c = self.calibration
        return c.send_latency_s + ideal / (self._network if self.layout.nodes > 1 else c.nvlink_efficiency)

    def _exchanged_s(self, ideal: float) -> float:
        c = self.calibration
        if not ideal:
            return 0.0
        if self.layout.nodes > 1:
            return c.network_reduce_latency_s + ideal / self._network
        return 2.0 * c.reduce_latency_s + ideal / c.nvlink_efficiency

    def work(self, held: float = math.inf) -> LoadWork:
        """The work at the stated steady concurrency, of which the replica's cache holds ``held`` requests."""
        setting, stages = self.setting, self.layout.pipeline
        load, limit = setting.workload, setting.max_num_batched_tokens
        asked = max(1.0, setting.service_level.concurrency / self.layout.data)
        batch = max(1.0, min(asked, held / self.layout.data))
        in_batch = max(1.0, batch / stages)
        context = load.input_tokens + load.output_tokens / 2
        chunk = min(load.input_tokens, limit)
        size = min(limit, batch * load.input_tokens)
        decode = Batch(tokens=in_batch, requests=in_batch, context=context, prompt=False)
        return LoadWork(
            decode=self.counter.step(decode),
            prompt=self._prompt(chunk, 1.0),
            chunks=-(-load.input_tokens // limit),
            burst=self._prompt(size, max(1.0, size / load.input_tokens)),
            burst_steps=math.ceil(batch * load.input_tokens / limit),
            batch=batch,
            queued=asked / batch - 1.0,
        )

    def _prompt(self, tokens: float, requests: float) -> StepWork:
        context = self.setting.workload.input_tokens / 2
        return self.counter.step(Batch(tokens=tokens, requests=requests, context=context, prompt=True))

    def latency(self) -> Latency:
        """Latencies at the stated steady concurrency."""
        return self.latency_of(self.work())

    def latency_of(self, work: LoadWork) -> Latency:
        """Latencies of counted work."""
        c, stages, data = self.calibration, self.layout.pipeline, self.layout.data
        output, batch = self.setting.workload.output_tokens, work.batch
        decode = self.priced(work.decode)
        prefill = self.priced(work.prompt).total_s * work.chunks
        # All requests at once: prompts are worked off in full steps, and the mean request waits for half of
        # them. With a pipeline the steps overlap, one stage behind the other.
        burst = self.priced(work.burst).total_s * ((work.burst_steps - 1) / 2 / stages + 1.0)
        first = prefill + c.wave_share * burst + decode.total_s + c.front_s
        # With a pipeline the other stages work on while one of them has a prompt.
        others = (batch - 1.0) / output * prefill / stages
        token = _interrupted_s(decode.total_s, others, first / output)
        # Who does not fit waits until as many requests as are before it have gone through whole.
        first += work.queued * (first + output * token)
        busy = batch * prefill / stages
        request = first + output * token
        return Latency(
            decode=decode,
            prefill_s=prefill,
            interference_s=token - decode.total_s,
            token_s=token,
            first_s=first,
            token_range_s=(token * c.token_low, token * c.token_high),
            first_range_s=(first * c.first_low, max(first * c.first_high, burst + c.front_s)),
            prefill_share=busy / (output * decode.total_s + busy),
            tokens_per_second=(1.0 + work.queued) * batch * data * output / request,
            requests_per_second=(1.0 + work.queued) * batch * data / request,
        )


def _interrupted_s(step: float, others: float, first: float) -> float:
    """Mean time per output token when each other request brings one prompt in the time that a request takes.

    Of these prompts, ``others`` per token in all, those delay no token that fall into the request's own wait
    for its first token, which is ``first`` per token: t = step + others * t / (first + t).
    """
    half = (step + others - first) / 2.0
    return max(step, half + math.sqrt(half * half + step * first))


def _compute_s(stage: StageWork, c: Calibration) -> float:
    return (
        stage.wide_s / c.compute_efficiency
        + stage.narrow_s / c.narrow_efficiency
        + stage.attention_s / c.attention_efficiency
        + stage.expert_compute_s / c.expert_compute_efficiency
    )
