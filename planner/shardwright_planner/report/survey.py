"""Everything that a report shows, computed once: the plan, its variants, its candidates, its load curve."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardwright_planner.answer import cut
from shardwright_planner.choice import rejection
from shardwright_planner.errors import PlanInputError
from shardwright_planner.evaluation import Candidate, judged, shortage
from shardwright_planner.plan import Plan
from shardwright_planner.planner import benches, plan
from shardwright_planner.request import Pins, PlanRequest, Policy
from shardwright_planner.sensitivity import Variant, sensitivity
from shardwright_planner.wording import fits

MOST_TIMED = 400
"""Candidates that get a latency: a pool of a thousand nodes is no reason to draw a thousand points."""
MOST_CONCURRENT = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The planned sizes at one concurrency; latencies in milliseconds, low and high end."""

    concurrency: int
    token_ms: tuple[float, float]
    first_ms: tuple[float, float]
    tokens_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One candidate of the search. Latencies are None where it does not fit or was not timed."""

    label: str
    pool: str
    gpus: int
    nodes: int
    cost_per_hour: float | None
    legal: bool
    fits: bool
    meets: bool
    chosen: bool
    weights_bytes: int
    requests: float  # typical ones that fit at once
    token_ms: tuple[float, float] | None
    first_ms: tuple[float, float] | None
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a report is made from."""

    plan: Plan
    variants: tuple[Variant, ...]
    curve: tuple[Point, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


def survey(request: PlanRequest, *, notes: Sequence[str] = ()) -> Survey:
    """Plan and look around.

    Raises:
        PlanInputError: as planning does.
    """
    found = plan(request)
    return Survey(
        plan=found,
        variants=sensitivity(request),
        curve=tuple(_curve(request, found)),
        rows=_rows(request, found),
        notes=tuple(notes),
    )


def _curve(request: PlanRequest, found: Plan) -> Iterator[Point]:
    if not fits(found) or found.predicted is None:
        return
    pins = Pins(
        tensor=found.tensor_parallel,
        pipeline=found.pipeline_parallel,
        data=found.data_parallel,
        expert=found.expert_parallel,
        pipeline_partition=found.pipeline_partition,
        cross_node_tensor=request.pins.cross_node_tensor,
    )
    pools = tuple(pool for pool in request.pools if pool.name == found.pool) or request.pools
    for concurrency in _concurrencies(found):
        level = replace(request.service_level, concurrency=concurrency, policy=Policy.BEST_EFFORT)
        try:
            at = plan(replace(request, pins=pins, pools=pools, service_level=level))
        except PlanInputError:
            continue
        if at.predicted is None or not fits(at):
            continue
        token, first = at.predicted.time_per_output_token_ms, at.predicted.time_to_first_token_ms
        yield Point(
            concurrency=concurrency,
            token_ms=(token.low, token.high),
            first_ms=(first.low, first.high),
            tokens_per_second=at.predicted.tokens_per_second,
        )


def _concurrencies(found: Plan) -> list[int]:
    asked = found.goal.concurrency
    most = min(MOST_CONCURRENT, max(1, int(found.slo_concurrency)))
    most = max(asked, min(most, 16 * asked))
    wanted = {1, asked, most}
    step = 1
    while step <= most:
        wanted |= {step, min(most, step * 3 // 2)}
        step *= 2
    return sorted(wanted)


def _rows(request: PlanRequest, found: Plan) -> tuple[Row, ...]:
    candidates: list[Candidate] = []
    for bench in benches(request):
        candidates.extend(judged(bench, bench.setting.pool, request.pins, whole=True))
    candidates.sort(key=lambda c: (c.layout.world, c.layout.nodes, c.layout.pipeline))
    timed = [c.timed() if index < MOST_TIMED else c for index, c in enumerate(candidates)]
    chosen = next((c for c in timed if _is_chosen(c, found)), None)
    return tuple(_row(candidate, chosen, found) for candidate in timed)


def _is_chosen(candidate: Candidate, found: Plan) -> bool:
    layout = candidate.layout
    return (
        candidate.setting.pool.name[:128] == found.pool
        and layout.tensor == found.tensor_parallel
        and layout.pipeline == found.pipeline_parallel
        and layout.data == found.data_parallel
        and layout.expert == found.expert_parallel
    )


def _row(candidate: Candidate, chosen: Candidate | None, found: Plan) -> Row:
    layout, fit, latency = candidate.layout, candidate.fit, candidate.latency
    is_chosen = candidate is chosen
    if is_chosen:
        verdict = "chosen" if candidate.fits else f"nearest: {shortage(candidate)}"
    elif chosen is None or not fits(found):
        verdict = candidate.violation or shortage(candidate)
    else:
        verdict = rejection(candidate, chosen)
    return Row(
        label=layout.label(),
        pool=candidate.setting.pool.name or candidate.setting.pool.gpu.name,
        gpus=layout.world,
        nodes=layout.nodes,
        cost_per_hour=candidate.cost_per_hour,
        legal=candidate.violation is None,
        fits=candidate.fits,
        meets=candidate.meets,
        chosen=is_chosen,
        weights_bytes=max((stage.weights for stage in fit.stages), default=0) if fit else 0,
        requests=fit.concurrency(candidate.setting.context_tokens) if fit else 0.0,
        token_ms=_milliseconds(latency.token_range_s) if latency else None,
        first_ms=_milliseconds(latency.first_range_s) if latency else None,
        verdict=cut(verdict),
    )


def _milliseconds(ends: tuple[float, float]) -> tuple[float, float]:
    return ends[0] * 1000.0, ends[1] * 1000.0
