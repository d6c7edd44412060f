"""What would make a plan fit or meet its service level, each remedy computed and not guessed.

A remedy is a changed request that was searched again; it is only named when the search succeeds with it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from shardwright_planner.choice import choose, milliseconds
from shardwright_planner.evaluation import Candidate
from shardwright_planner.request import PlanRequest
from shardwright_planner.weights import WeightTable

Search = Callable[[PlanRequest], tuple[list[Candidate], dict[int, WeightTable]]]
MOST_NODES = 64


def fit_remedies(request: PlanRequest, closest: Candidate, search: Search) -> tuple[tuple[str, ...], int]:
    """Sentences, and how many GPUs more the smallest fitting plan needs (0 if no number of nodes helps)."""
    texts: list[str] = []
    missing = 0
    more = _more_nodes(request, search)
    if more is not None:
        nodes, chosen = more
        reach = closest.setting.pool.gpus_per_node * closest.setting.pool.nodes
        missing = max(0, chosen.layout.world - reach)
        texts.append(
            f"Allow {nodes} nodes: {chosen.layout.label()} on {chosen.layout.world} {_gpu(chosen)} GPUs fits."
        )
    texts.extend(_lighter(request, search))
    texts.extend(_shorter(closest))
    return tuple(texts), missing


def speed_remedies(
    request: PlanRequest, chosen: Candidate, search: Search, table: WeightTable
) -> tuple[str, ...]:
    """What would meet the service level that the best fitting plan misses."""
    texts: list[str] = []
    more = _more_nodes(request, search, start=chosen.setting.pool.nodes + 1, most=4)
    if more is not None and more[1].meets:
        layout = more[1].layout
        texts.append(f"Allow {more[0]} nodes: {layout.label()} is predicted to meet the SLO.")
    for text, other in _variants(request):
        found = choose(search(other)[0])
        if found is not None and found.meets:
            texts.append(f"{text}: {found.layout.label()} is predicted to meet the SLO.")
    texts.extend(_calmer(chosen, table))
    return tuple(texts)


def _more_nodes(
    request: PlanRequest, search: Search, start: int = 0, most: int = MOST_NODES
) -> tuple[int, Candidate] | None:
    # Memory per GPU falls with every node, so that doubling and halving finds the least number.
    have = max(p.nodes for p in request.pools)
    low, high = max(have, start - 1), max(have, start - 1) * 2
    best: tuple[int, Candidate] | None = None
    while high <= max(most, have * 2) and best is None:
        best = _with_nodes(request, search, high)
        low, high = (low, high) if best else (high, high * 2)
    if best is None:
        return None
    high = best[0]
    while high - low > 1:
        middle = (low + high) // 2
        found = _with_nodes(request, search, middle)
        if found is None:
            low = middle
        else:
            best, high = found, middle
    return best


def _with_nodes(request: PlanRequest, search: Search, nodes: int) -> tuple[int, Candidate] | None:
    pools = tuple(replace(pool, nodes=nodes) for pool in request.pools)
    chosen = choose(search(replace(request, pools=pools))[0])
    return None if chosen is None else (nodes, chosen)


def _variants(request: PlanRequest) -> Iterator[tuple[str, PlanRequest]]:
    engine = request.engine
    stored = request.model.quantization
    if engine.kv_cache_dtype in {None, "auto", "bfloat16", "float16"} and not (
        stored and stored.kv_cache_dtype
    ):
        yield "Use an FP8 KV cache", replace(request, engine=replace(engine, kv_cache_dtype="fp8"))
    if stored is None and engine.quantization is None:
        yield "Use FP8 weights", replace(request, engine=replace(engine, quantization="fp8"))


def _lighter(request: PlanRequest, search: Search) -> Iterator[str]:
    for text, other in _variants(request):
        chosen = choose(search(other)[0])
        if chosen is not None:
            yield f"{text}: {chosen.layout.label()} on {chosen.layout.world} GPUs fits."


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


def _calmer(chosen: Candidate, table: WeightTable) -> Iterator[str]:
    level = chosen.setting.service_level
    low, high = 0, level.concurrency
    while high - low > 1:
        middle = (low + high) // 2
        eased = replace(
            chosen,
            setting=replace(chosen.setting, service_level=replace(level, concurrency=middle)),
            latency=None,
        ).timed(table)
        low, high = (middle, high) if eased.meets else (low, middle)
    if low:
        yield f"Lower the concurrency to {low} per replica and run more replicas."
    elif chosen.latency is not None and level.time_per_output_token_s is not None:
        alone = replace(
            chosen,
            setting=replace(chosen.setting, service_level=replace(level, concurrency=1)),
            latency=None,
        ).timed(table)
        if alone.latency is not None and not alone.meets:
            reached = milliseconds(alone.latency.token_range_s[1])
            yield f"Relax the SLO: one request alone takes up to {reached} per output token on this layout."


def _gpu(candidate: Candidate) -> str:
    return candidate.setting.pool.gpu.name
