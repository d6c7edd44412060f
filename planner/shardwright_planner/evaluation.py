"""One candidate with its verdict: legal or not, fits or not, fast enough or not."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from shardwright_planner.candidates import candidates
from shardwright_planner.gpu import GIB
from shardwright_planner.latency import Latency
from shardwright_planner.layout import Layout
from shardwright_planner.memory import Fit
from shardwright_planner.request import Pins, Pool
from shardwright_planner.setting import Setting
from shardwright_planner.workbench import Workbench

STOP_BEYOND = 8
MOST_STAGES_PER_NODE = 2  # over NVLink, where heads and widths allow a wider TP


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A layout on a pool. ``fit`` is None where it is illegal, ``latency`` where it was not needed."""

    bench: Workbench
    layout: Layout
    violation: str | None = None
    fit: Fit | None = None
    latency: Latency | None = None

    @property
    def setting(self) -> Setting:
        """The pool's complete problem."""
        return self.bench.setting

    @property
    def fits(self) -> bool:
        """Whether it is legal and holds the goal."""
        return self.fit is not None and self.fit.fits

    def misses(self) -> Iterator[tuple[str, float, float]]:
        """(figure, predicted high end, goal) in seconds for each service level that is missed."""
        level, latency = self.setting.service_level, self.latency
        if latency is None:
            return
        figures = (
            ("time per output token", latency.token_range_s[1], level.time_per_output_token_s),
            ("time to first token", latency.first_range_s[1], level.time_to_first_token_s),
        )
        yield from ((name, high, goal) for name, high, goal in figures if goal is not None and high > goal)

    @property
    def meets(self) -> bool:
        """Whether it fits and no stated service level is missed."""
        return self.fits and self.latency is not None and not any(True for _ in self.misses())

    @property
    def miss_ratio(self) -> float:
        """The largest predicted figure over its goal; 1 where everything is met."""
        return max((high / goal for _, high, goal in self.misses()), default=1.0)

    @property
    def cost_per_hour(self) -> float | None:
        """What one replica costs, where the pool has a price."""
        price = self.setting.pool.price_per_gpu_hour
        return None if price is None else price * self.layout.world

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """Predicted output tokens per second and GPU."""
        return self.latency.tokens_per_second / self.layout.world if self.latency else 0.0

    def timed(self) -> "Candidate":
        """The same with its latency."""
        if not self.fits or self.latency is not None:
            return self
        return replace(self, latency=self.bench.latency(self.layout))


def judge(bench: Workbench, layout: Layout, pins: Pins) -> Candidate:
    """Legality and memory of one layout, with an evened-out partition where only that fits."""
    violation = bench.legality.violation(layout)
    if violation is not None:
        return Candidate(bench=bench, layout=layout, violation=violation)
    fit = bench.fit(layout)
    if not fit.fits and layout.pipeline > 1 and layout.own_partition and pins.pipeline_partition is None:
        layout, fit = bench.rebalanced(layout, fit)
    return Candidate(bench=bench, layout=layout, fit=fit)


def evened(candidate: Candidate, pins: Pins) -> Candidate:
    """The candidate with another partition, where its stages are so uneven that one holds much more cache.

    Looked at for the chosen candidate alone, since it costs more than judging one.
    """
    layout, fit = candidate.layout, candidate.fit
    if fit is None or layout.pipeline == 1 or not layout.own_partition or pins.pipeline_partition is not None:
        return candidate
    found = candidate.bench.roomier(layout, fit)
    if found is None:
        return candidate
    other = replace(candidate, layout=found[0], fit=found[1], latency=None).timed()
    return other if other.fits and (other.meets or not candidate.meets) else candidate


def judged(
    bench: Workbench, pool: Pool, pins: Pins, *, least_nodes: int = 1, whole: bool = False
) -> list[Candidate]:
    """Every candidate on that many nodes or more with its legality and memory, fewest GPUs first.

    Without a latency to meet, layouts of many times the GPUs that suffice are not looked at, unless the
    ``whole`` list is wanted.
    """
    found: list[Candidate] = []
    enough: int | None = None
    free = (pins.tensor, pins.pipeline) == (None, None) and pool.gpu.nvlink_domain > 1
    tensors = bench.legality.legal_tensor_sizes(pool.gpus_per_node) if free else ()
    for layout in candidates(bench.setting.model, pool, pins, least_nodes):
        if layout.expert and layout.data == 1 and pins.expert is None and _plain_twin(found, layout):
            continue  # cutting the experts is legal, so that nothing is gained
        if free and _is_needlessly_deep(layout, tensors):
            continue
        if enough is not None and layout.world > STOP_BEYOND * enough:
            break
        found.append(judge(bench, layout, pins))
        if enough is None and not whole and bench.setting.has_no_goals and found[-1].fits:
            enough = layout.world
    return found


def _is_needlessly_deep(layout: Layout, tensors: Sequence[int]) -> bool:
    # A few GiB of NCCL's buffers are no reason to cut a model into 32 stages where NVLink and a wider TP are
    # there.
    if layout.pipeline <= MOST_STAGES_PER_NODE * layout.nodes:
        return False
    return any(size > layout.tensor and layout.gpus_per_node % size == 0 for size in tensors)


def _plain_twin(found: Sequence[Candidate], layout: Layout) -> bool:
    sizes = (layout.tensor, layout.pipeline, layout.data)
    return any(
        (c.layout.tensor, c.layout.pipeline, c.layout.data) == sizes and c.violation is None
        for c in found[-2:]
    )


def timed(found: Sequence[Candidate]) -> list[Candidate]:
    """The candidates with latencies, as far as the choice can depend on them.

    Candidates are in order of GPUs or of cost: once one meets its service level, larger ones cannot be chosen
    any more and are not timed.
    """
    result = []
    enough: float | None = None
    weight = weigher(found)
    for candidate in sorted(found, key=lambda c: (weight(c), c.layout.world)):
        if candidate.fits and (enough is None or weight(candidate) <= enough):
            done = candidate.timed()
            if done.meets and enough is None:
                enough = weight(done)
            result.append(done)
        else:
            result.append(candidate)
    return result


def weigher(found: Sequence[Candidate]) -> Callable[[Candidate], float]:
    """What a candidate is to be spared of: its cost if every one has a price, else its GPUs."""
    if found and all(candidate.cost_per_hour is not None for candidate in found):
        return lambda candidate: candidate.cost_per_hour or 0.0
    return lambda candidate: float(candidate.layout.world)


def shortage(candidate: Candidate) -> str:
    """Why a legal candidate does not fit, with the numbers of its tightest stage."""
    fit, setting, layout = candidate.fit, candidate.setting, candidate.layout
    if fit is None:
        return candidate.violation or ""
    index = max(range(len(fit.stages)), key=lambda i: fit.stages[i].missing)
    stage = fit.stages[index]
    where = f" on stage {index + 1} of {layout.pipeline}" if layout.pipeline > 1 else ""
    allowed = setting.pool.gpu.memory_bytes * setting.utilization
    if not fit.weights_fit:
        taken = f"weights of {gib(stage.weights)} GiB"
        if stage.activation > stage.weights:
            # A step of 16 million tokens was refused for weights of 8 GiB on a GPU of 80.
            taken = f"activations of {gib(stage.activation)} and {taken}"
        return (
            f"{taken} per GPU{where} leave no cache: each GPU may use {gib(allowed)} GiB and lacks "
            f"{gib(stage.missing)} GiB"
        )
    holds = int(fit.concurrency(setting.context_tokens))
    longest = fit.longest_request()
    if longest < setting.longest_tokens:
        return f"longest request that fits has {longest:,} tokens, {setting.longest_tokens:,} are needed"
    if holds >= setting.service_level.concurrency:
        # The cache is large enough, and "holds 154 of 32 requests" was no reason.
        return (
            f"{gib(allowed)} GiB for the engine leave each GPU {gib(stage.missing)} GiB too little for what "
            f"CUDA and NCCL hold beside it{where}"
        )
    return (
        f"cache holds {holds:,} of {setting.service_level.concurrency:,} requests of "
        f"{setting.context_tokens:,} tokens and lacks {gib(stage.missing)} GiB per GPU{where}"
    )


def gib(size: float) -> str:
    """Bytes as GiB with one decimal."""
    return f"{size / GIB:.1f}"
