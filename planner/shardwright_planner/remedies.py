"""What would make a plan fit or meet its service level, each remedy computed and not guessed.

A remedy is a changed problem whose layouts were judged again; it is only named when one succeeds.
"""

from collections.abc import Iterator
from dataclasses import replace

from shardwright_planner.candidates import MOST_NODES
from shardwright_planner.choice import choose, milliseconds
from shardwright_planner.errors import PlanInputError
from shardwright_planner.evaluation import Candidate, judge, judged, timed
from shardwright_planner.request import EngineOptions, PlanRequest, Pool
from shardwright_planner.setting import settings
from shardwright_planner.workbench import Workbench

LEAST_SEQUENCES = 16
MOST_NODES_FOR_SPEED = 8  # beyond it another node does next to nothing for a latency


def fit_remedies(request: PlanRequest, closest: Candidate) -> tuple[tuple[str, ...], int]:
    """Sentences, and how many GPUs more the smallest fitting plan needs (0 if no number of nodes helps)."""
    texts: list[str] = []
    missing = 0
    pool = closest.setting.pool
    more = _least_nodes(request, closest)
    if more is not None:
        layout = more.layout
        missing = max(0, layout.world - pool.gpus_per_node * pool.nodes)
        texts.append(
            f"Allow {layout.nodes} nodes: {layout.label()} on {layout.world} {pool.gpu.name} GPUs fits, "
            f"{missing} more than allowed now."
        )
    for text, bench in _lighter(request, closest):
        found = choose(timed(judged(bench, pool, request.pins)))
        if found is not None:
            texts.append(f"{text}: {found.layout.label()} on {_gpus(found.layout.world)} fits.")
    texts.extend(_left_to_the_planner(request, closest))
    texts.extend(_fewer_sequences(request, closest))
    texts.extend(_shorter(closest))
    return tuple(texts), missing


def speed_remedies(request: PlanRequest, chosen: Candidate) -> tuple[str, ...]:
    """What would meet the service level that the best fitting plan misses, close to the chosen layout."""
    texts: list[str] = []
    nodes = chosen.setting.pool.nodes
    for more in sorted({nodes + 1, 2 * nodes}):
        if more > MOST_NODES_FOR_SPEED:
            break
        found = choose(timed(_with_nodes(request, chosen, more)))
        if found is not None and found.meets:
            texts.append(f"Allow {more} nodes: {found.layout.label()} is predicted to meet the SLO.")
            break
    for text, bench in _lighter(request, chosen):
        candidate = judge(bench, chosen.layout, request.pins).timed()
        if candidate.meets:
            texts.append(f"{text}: {candidate.layout.label()} is then predicted to meet the SLO.")
    texts.extend(_calmer(chosen))
    return tuple(texts)


def _least_nodes(request: PlanRequest, closest: Candidate) -> Candidate | None:
    # Memory per GPU falls with every node, so that doubling and then halving finds the least number.
    low = closest.setting.pool.nodes
    high, best = 2 * low, None
    while high <= MOST_NODES:
        best = _fitting(request, closest, high)
        if best is not None:
            break
        low, high = high, 2 * high
    while best is not None and high - low > 1:
        middle = (low + high) // 2
        found = _fitting(request, closest, middle)
        if found is None:
            low = middle
        else:
            best, high = found, middle
    return best


def _fitting(request: PlanRequest, closest: Candidate, nodes: int) -> Candidate | None:
    # What the plan on these nodes will be, and not just anything that fits them.
    return choose(timed(_with_nodes(request, closest, nodes)))


def _with_nodes(request: PlanRequest, near: Candidate, nodes: int) -> list[Candidate]:
    pool = replace(near.setting.pool, nodes=nodes)
    return judged(near.bench, pool, request.pins, least_nodes=nodes)


def _lighter(request: PlanRequest, near: Candidate) -> Iterator[tuple[str, Workbench]]:
    engine, stored = request.engine, request.model.quantization
    pool = (near.setting.pool,)
    if near.setting.cache_bytes > 1:
        yield from _changed("Use an FP8 KV cache", replace(engine, kv_cache_dtype="fp8"), request, pool)
    if stored is None and engine.quantization is None:
        yield from _changed("Use FP8 weights", replace(engine, quantization="fp8"), request, pool)


def _fewer_sequences(request: PlanRequest, closest: Candidate) -> Iterator[str]:
    # The sampler's logits are kept for as many sequences as a step may have, wanted or not.
    needed = -(-request.service_level.concurrency // closest.layout.data)
    fewer = max(LEAST_SEQUENCES, 1 << (needed - 1).bit_length())
    if request.engine.max_num_seqs is not None or fewer >= closest.setting.max_num_seqs:
        return
    pool = closest.setting.pool
    engine = replace(request.engine, max_num_seqs=fewer)
    for text, bench in _changed(f"Set engine.maxNumSeqs to {fewer}", engine, request, (pool,)):
        found = choose(timed(judged(bench, pool, request.pins)))
        if found is not None:
            texts = f"{found.layout.label()} on {_gpus(found.layout.world)} fits"
            yield f"{text}, which is enough for the stated concurrency and frees working memory: {texts}."


def _left_to_the_planner(request: PlanRequest, closest: Candidate) -> Iterator[str]:
    pool, given = closest.setting.pool, request.engine
    for field, engine in (
        ("gpuMemoryUtilization", replace(given, gpu_memory_utilization=None)),
        ("maxNumBatchedTokens", replace(given, max_num_batched_tokens=None)),
    ):
        if engine == given:
            continue
        for text, bench in _changed(f"Leave engine.{field} out", engine, request, (pool,)):
            found = choose(timed(judged(bench, pool, request.pins)))
            if found is not None:
                yield f"{text}: {found.layout.label()} on {_gpus(found.layout.world)} fits."


def _changed(
    text: str, engine: EngineOptions, request: PlanRequest, pools: tuple[Pool, ...]
) -> Iterator[tuple[str, Workbench]]:
    try:
        setting = settings(replace(request, engine=engine, pools=pools))[0]
    except PlanInputError:
        return
    bench = Workbench(setting)
    if bench.legality.capability_violation(setting.pool.gpu) is None:
        yield text, bench


def _shorter(closest: Candidate) -> Iterator[str]:
    fit, setting = closest.fit, closest.setting
    if fit is None or not fit.weights_fit:
        return
    longest = fit.longest_request()
    if setting.context_tokens <= longest < setting.longest_tokens:
        yield f"Lower maxModelLength to {longest} or less on {closest.layout.label()}."
    holds = int(fit.concurrency(setting.context_tokens))
    if 1 <= holds < setting.service_level.concurrency and longest >= setting.context_tokens:
        yield f"Lower the concurrency to {holds} on {closest.layout.label()}."


def _calmer(chosen: Candidate) -> Iterator[str]:
    low, high = 0, chosen.setting.service_level.concurrency
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _at(chosen, middle).meets else (low, middle)
    if low:
        yield f"Lower the concurrency to {low} per replica and run more replicas."
        return
    alone = _at(chosen, 1)
    missed = ", ".join(f"{name} of up to {milliseconds(reached)}" for name, reached, _ in alone.misses())
    if missed:
        yield f"Relax the SLO: even one request alone has a {missed} on {chosen.layout.label()}."


def _at(chosen: Candidate, concurrency: int) -> Candidate:
    bench = chosen.bench.at(replace(chosen.setting.service_level, concurrency=concurrency))
    return replace(chosen, bench=bench, latency=None).timed()


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
