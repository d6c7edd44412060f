"""Which layers a pipeline stage gets: vLLM's own rule, and one that evens out the memory.

vLLM counts layers, not bytes. Where the first layers are light or the last stage carries the head, a
partition by bytes (``VLLM_PP_LAYER_PARTITION``) can hold a model that the engine's own split cannot.
"""

from collections.abc import Sequence


def own_partition(layers: int, stages: int) -> tuple[int, ...]:
    """vLLM's split (distributed/utils.py, get_pp_indices).

    Layers left over go to the stages before the last: with more than two stages the ends are the lightest.
    """
    base, left = divmod(layers, stages)
    sizes = [base] * stages
    for step in range(left):
        sizes[(stages - 2 - step) % stages] += 1
    return tuple(sizes)


def stage_ranges(partition: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """(first layer, one past the last) of each stage."""
    ranges = []
    start = 0
    for size in partition:
        ranges.append((start, start + size))
        start += size
    return tuple(ranges)


def balanced_partition(
    weights: Sequence[int], caches: Sequence[int], budgets: Sequence[int]
) -> tuple[int, ...] | None:
    """The partition that leaves room for the most cached tokens on the fullest stage.

    Args:
        weights: bytes of each layer on a rank.
        caches: cache bytes per token of each layer on a rank.
        budgets: bytes that each stage has for its layers and their cache.

    Returns:
        layers per stage, or None when no partition holds the weights alone.
    """
    best = _filled(weights, caches, budgets, 0)
    if best is None or not any(caches):
        return best
    low, high = 0, max(1, max(budgets) // max(1, min(c for c in caches if c) if any(caches) else 1))
    while high - low > max(16, low // 500):
        middle = (low + high) // 2
        found = _filled(weights, caches, budgets, middle)
        if found is None:
            high = middle
        else:
            best, low = found, middle
    return best


def _filled(
    weights: Sequence[int], caches: Sequence[int], budgets: Sequence[int], tokens: int
) -> tuple[int, ...] | None:
    # Stage by stage, as many layers as fit, while at least one is left for every later stage.
    sizes = []
    layer, count = 0, len(weights)
    for stage, budget in enumerate(budgets):
        left = len(budgets) - stage - 1
        used = taken = 0
        while layer < count - left:
            need = weights[layer] + tokens * caches[layer]
            if used + need > budget:
                break
            used += need
            layer += 1
            taken += 1
        if taken == 0:
            return None
        sizes.append(taken)
    return tuple(sizes) if layer == count else None
