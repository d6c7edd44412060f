"""The choice among candidates, and one line for each that was not chosen.

Order: meets the service level, lowest cost where GPUs have prices, fewest GPUs, fewest nodes, smallest
pipeline, then throughput per GPU. Within a tenth of the best throughput the plainer layout wins, since the
prediction is not finer than that.
"""

import math
from collections.abc import Sequence

from shardwright_planner.evaluation import Candidate, shortage, weigher
from shardwright_planner.plan import Rule, SplitCause
from shardwright_planner.request import Pins
from shardwright_planner.wording import time_scale

PLAIN_WITHIN = 1.10
MOST_COMPARED = 16


def choose(found: Sequence[Candidate]) -> Candidate | None:
    """The candidate to deploy, or None if nothing fits.

    If nothing meets the service level, the one that comes closest to it on as many nodes as are worth it.
    """
    fitting = [candidate for candidate in found if candidate.fits]
    if not fitting:
        return None
    meeting = [candidate for candidate in fitting if candidate.meets]
    if meeting:
        return _smallest(meeting)
    near = _worth_their_nodes(fitting)
    # Within a tenth of the closest the fewest GPUs win: a missed goal is no reason to double them for 3 %.
    close = closest(near).miss_ratio * PLAIN_WITHIN
    return _smallest([candidate for candidate in near if candidate.miss_ratio <= close])


def closest(fitting: Sequence[Candidate]) -> Candidate:
    """The candidate that comes closest to a service level which none meets, whatever it takes."""
    return min(fitting, key=lambda c: (c.miss_ratio, c.layout.world))


def _worth_their_nodes(fitting: Sequence[Candidate]) -> list[Candidate]:
    # Five nodes instead of two that still miss the goal by 76 % are wasted; two instead of one that come
    # within the prediction's own error of it are not. So every further node has to take its share off the
    # miss.
    least: dict[int, float] = {}
    for candidate in fitting:
        nodes = candidate.layout.nodes
        least[nodes] = min(least.get(nodes, math.inf), candidate.miss_ratio)
    best = min(least, key=lambda nodes: ((least[nodes] - 1.0 + PLAIN_WITHIN - 1.0) * nodes, nodes))
    return [candidate for candidate in fitting if candidate.layout.nodes <= best]


def nearest(found: Sequence[Candidate]) -> Candidate | None:
    """The legal candidate that lacks least, when nothing fits."""
    legal = [(c.fit.missing_bytes, c) for c in found if c.fit is not None]
    if not legal:
        return None
    # Within a quarter the documented layout is the better example: TP in the node before many stages.
    close = min(missing for missing, _ in legal) * 1.25
    near = [c for missing, c in legal if missing <= close]
    return min(near, key=lambda c: (c.layout.nodes, c.layout.pipeline, c.layout.data, -c.layout.world))


def _smallest(found: Sequence[Candidate]) -> Candidate:
    weight = weigher(found)
    sizes = [(weight(c), c.layout.world, c.layout.nodes, c.layout.pipeline) for c in found]
    least = min(sizes)
    return _plainest([candidate for candidate, size in zip(found, sizes, strict=True) if size == least])


def _plainest(found: Sequence[Candidate]) -> Candidate:
    best = max(candidate.tokens_per_second_per_gpu for candidate in found)
    close = [c for c in found if c.tokens_per_second_per_gpu * PLAIN_WITHIN >= best]
    return min(close, key=lambda c: (c.layout.data, c.layout.expert, -c.tokens_per_second_per_gpu))


def rejection(candidate: Candidate, chosen: Candidate) -> str:
    """Why a candidate was not chosen, in one line."""
    if candidate.violation is not None:
        return candidate.violation
    if not candidate.fits:
        return shortage(candidate)
    mine, other = candidate.layout, chosen.layout
    missed = miss_text(candidate)
    if missed and chosen.meets:
        return f"fits, but {missed}"
    costs = candidate.cost_per_hour, chosen.cost_per_hour
    if chosen.meets and costs[0] is not None and costs[1] is not None and costs[0] > costs[1]:
        return f"fits, but costs {costs[0]:.2f} per hour where {costs[1]:.2f} suffice"
    if chosen.meets and mine.world > other.world:
        enough = "one does" if other.world == 1 else f"{other.world} suffice"
        return f"fits, but takes {mine.world} GPUs where {enough}"
    if missed and candidate.miss_ratio > chosen.miss_ratio * PLAIN_WITHIN:
        return f"fits, but {missed}, further off than {other.label()}"
    if mine.world != other.world:
        gain = 1.0 - candidate.miss_ratio / chosen.miss_ratio
        if gain <= PLAIN_WITHIN - 1.0:
            return f"fits, but comes hardly closer to the service level with {mine.world} GPUs"
        return f"fits, but still misses the service level, by {100 * gain:.0f} % less with {mine.world} GPUs"
    if mine.nodes != other.nodes:
        return f"fits, but spreads over {mine.nodes} nodes instead of {other.nodes}"
    if mine.pipeline != other.pipeline:
        return f"fits, but with {mine.pipeline} stages instead of {other.pipeline} at equal GPUs"
    plainer = (other.data, other.expert) < (mine.data, mine.expert)
    if plainer and candidate.tokens_per_second_per_gpu * PLAIN_WITHIN >= chosen.tokens_per_second_per_gpu:
        return f"fits and is about as fast; {other.label()} is the plainer layout"
    rates = f"{candidate.tokens_per_second_per_gpu:.0f} against {chosen.tokens_per_second_per_gpu:.0f}"
    return f"fits, but predicts fewer tokens per second and GPU: {rates}"


def saving_text(chosen: Candidate, found: Sequence[Candidate]) -> str:
    """What the cheapest layout on GPUs of another kind costs, to end the reason with; empty without prices.

    With prices the fewest GPUs need not win, and this says why.
    """
    cost, pool = chosen.cost_per_hour, chosen.setting.pool
    others = [c for c in found if c.setting.pool != pool and c.fits and c.cost_per_hour is not None]
    if cost is None:
        return ""
    for other in sorted(others, key=lambda c: (c.cost_per_hour, c.layout.world))[:MOST_COMPARED]:
        # Whatever costs more than the choice was not timed before.
        if other.timed().meets or not chosen.meets:
            what = f"{other.layout.label()} on {other.setting.pool.gpu.name}"
            return (
                f". It costs {cost:.2f} per hour, the next of another kind {other.cost_per_hour:.2f} ({what})"
            )
    return ""


def miss_text(candidate: Candidate) -> str:
    """Which service levels are missed and by how much; empty if none is."""
    return " and ".join(_missed(*each) for each in candidate.misses())


def _missed(name: str, high: float, goal: float) -> str:
    scale = time_scale(1000 * high, 1000 * goal)
    reached, wanted = scale.text(1000 * high), scale.text(1000 * goal)
    return f"{name} of up to {reached} misses {wanted} by {100 * (high / goal - 1):.0f} %"


def milliseconds(seconds: float) -> str:
    """Seconds as people read latencies."""
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds * 1000:.0f} ms"


def rule_of(candidate: Candidate, pins: Pins) -> Rule:
    """Which documented rule a layout follows."""
    layout = candidate.layout
    if pins.tensor is not None and pins.pipeline is not None:
        return Rule.PINNED
    if layout.world == 1:
        return Rule.ONE_GPU
    if layout.data > 1:
        return Rule.DATA_EXPERT
    if layout.crosses_nodes:
        return Rule.CROSS_NODE_TENSOR
    if layout.pipeline == 1:
        return Rule.TENSOR_IN_NODE
    if layout.nodes > 1 and layout.pipeline == layout.nodes:
        return Rule.TENSOR_AND_PIPELINE
    return Rule.PIPELINE


def split_cause(found: Sequence[Candidate], chosen: Candidate) -> SplitCause:
    """What ruled out every smaller layout on GPUs of the same kind."""
    if chosen.layout.world == 1:
        return SplitCause.NOT_SPLIT
    same = [c for c in found if c.setting.pool == chosen.setting.pool and c.fit is not None]
    smaller = [c for c in same if c.layout.world < chosen.layout.world]
    if not smaller:
        return SplitCause.PINNED
    if any(candidate.fits for candidate in smaller):
        return SplitCause.LATENCY
    if any(candidate.fit is not None and candidate.fit.weights_fit for candidate in smaller):
        return SplitCause.CACHE
    return SplitCause.WEIGHTS


def reason_text(chosen: Candidate, cause: SplitCause) -> str:
    """Why the layout is as large as it is."""
    layout, pool = chosen.layout, chosen.setting.pool
    where = (
        f"{layout.label()} on {layout.nodes} {'node' if layout.nodes == 1 else 'nodes'} of {pool.gpu.name}"
    )
    match cause:
        case SplitCause.NOT_SPLIT:
            return f"One {pool.gpu.name} holds the model and the wanted cache; nothing is split"
        case SplitCause.WEIGHTS:
            return f"{where}: the weights do not fit on fewer GPUs"
        case SplitCause.CACHE:
            return f"{where}: the cache for the wanted load does not fit on fewer GPUs"
        case SplitCause.LATENCY if not chosen.meets:
            return f"{where}: nothing that fits meets the service level; it comes closest for what it takes"
        case SplitCause.LATENCY:
            return f"{where}: fewer GPUs hold the model but miss the service level"
        case SplitCause.PINNED:
            return f"{where}: the sizes are pinned"


def slo_text(chosen: Candidate, found: Sequence[Candidate]) -> str:
    """What is predicted against the service level."""
    level = chosen.setting.service_level
    if chosen.setting.has_no_goals:
        return "No service level was given"
    if not chosen.fits:
        return "Nothing fits, so that no latency can be held against the service level"
    missed = miss_text(chosen)
    if missed:
        text = f"Predicted {missed} at {level.concurrency} concurrent requests"
        nearest = closest([candidate for candidate in found if candidate.fits])
        if nearest.layout.nodes <= chosen.layout.nodes:
            return text
        where = f"{nearest.layout.label()} on {nearest.layout.nodes} nodes"
        return f"{text}. {where} comes closest: {miss_text(nearest)}"
    return f"Predicted to be met at {level.concurrency} concurrent requests, high ends included"
