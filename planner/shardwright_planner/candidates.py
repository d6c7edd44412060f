"""Which layouts are worth considering on a pool, pins obeyed.

The documented rules set the frame. Inside a node any tensor size that divides it, filled up with pipeline
stages; over several nodes whole nodes only, with stages for what TP leaves; TP across nodes only when asked
for. Sparse models get expert parallelism and data-parallel attention besides.
"""

from collections.abc import Iterator

from shardwright_planner.errors import PlanInputError
from shardwright_planner.layout import Layout
from shardwright_planner.legality import Legality
from shardwright_planner.model import Attention, LatentAttention, ModelFacts
from shardwright_planner.partition import own_partition
from shardwright_planner.plan import MAX_STAGES
from shardwright_planner.request import Pins, Pool

MOST_NODES = 64


def candidates(model: ModelFacts, pool: Pool, pins: Pins, least_nodes: int = 1) -> tuple[Layout, ...]:
    """Layouts to consider, fewest GPUs first; illegal ones are among them, so that they can say why."""
    found: dict[tuple[int, int, int, bool], Layout] = {}
    for layout in _sizes(model, pool, pins, least_nodes):
        key = (layout.tensor, layout.pipeline, layout.data, layout.expert)
        if key not in found or layout.nodes < found[key].nodes:
            found[key] = layout
    return tuple(
        sorted(
            found.values(), key=lambda item: (item.world, item.nodes, item.pipeline, item.data, item.expert)
        )
    )


def _sizes(model: ModelFacts, pool: Pool, pins: Pins, least_nodes: int) -> Iterator[Layout]:
    experts = model.experts.count if model.experts else 1
    for tensor in _tensor_sizes(model, pool, pins):
        for nodes, depth in _depths(pool, tensor, pins):
            if nodes < least_nodes:
                continue
            for pipeline, data in _factors(model, depth, pins):
                if pipeline > MAX_STAGES or data > experts:
                    continue  # a cluster of a thousand nodes is no reason to try a thousand stages
                for expert in _expert_choices(model, tensor, data, pins):
                    yield _layout(model, pins, (tensor, pipeline, data), nodes=nodes, expert=expert)


def _tensor_sizes(model: ModelFacts, pool: Pool, pins: Pins) -> tuple[int, ...]:
    if pins.tensor is not None:
        return (pins.tensor,)
    heads = next((k.mixer.heads for k in model.kinds if isinstance(k.mixer, Attention | LatentAttention)), 1)
    width = pool.gpus_per_node
    sizes = {size for size in range(1, width + 1) if width % size == 0 or heads % size == 0}
    if pins.cross_node_tensor:
        sizes |= {width * nodes for nodes in range(2, min(pool.nodes, MOST_NODES) + 1)}
    return tuple(sorted(sizes))


def _depths(pool: Pool, tensor: int, pins: Pins) -> Iterator[tuple[int, int]]:
    # (nodes, tensor groups in the replica). Inside one node any divisor; over nodes each node is filled.
    width = pool.gpus_per_node
    if tensor > width:
        if tensor % width == 0:
            span = tensor // width
            yield from ((span * groups, groups) for groups in range(1, pool.nodes // span + 1))
        return
    inside = width // tensor
    pinned = pins.pipeline is not None or (pins.data or 1) > 1
    for groups in range(1, inside + 1):
        if inside % groups == 0 or pinned:
            yield 1, groups
    for nodes in range(2, min(pool.nodes, MOST_NODES) + 1):
        yield nodes, inside * nodes
        if pinned:
            yield from ((nodes, groups * nodes) for groups in range(1, inside))


def _factors(model: ModelFacts, depth: int, pins: Pins) -> Iterator[tuple[int, int]]:
    # Tensor groups are either stages or data ranks; both at once only when pinned.
    if pins.pipeline is not None or pins.data is not None:
        for pipeline in range(1, depth + 1):
            if depth % pipeline == 0:
                data = depth // pipeline
                if pins.pipeline in {None, pipeline} and data == (pins.data or (data if model.is_moe else 1)):
                    yield pipeline, data
        return
    yield depth, 1
    if model.is_moe and depth > 1:
        yield 1, depth


def _expert_choices(model: ModelFacts, tensor: int, data: int, pins: Pins) -> tuple[bool, ...]:
    if pins.expert is not None:
        return (pins.expert,)
    if not model.is_moe or tensor * data == 1:
        return (False,)
    # Data-parallel attention goes with whole experts; with TP alone they are the way out where cutting the
    # experts is illegal, which the evaluation decides.
    return (True,) if data > 1 else (False, True)


def _layout(
    model: ModelFacts, pins: Pins, sizes: tuple[int, int, int], *, nodes: int, expert: bool
) -> Layout:
    tensor, pipeline, data = sizes
    stages = min(pipeline, model.layer_count)
    own = own_partition(model.layer_count, stages)
    partition = pins.pipeline_partition or own
    return Layout(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        expert=expert,
        nodes=nodes,
        gpus_per_node=tensor * pipeline * data // nodes,
        partition=partition,
        own_partition=partition == own,
    )


def check_pins(legality: Legality, pins: Pins, pools: tuple[Pool, ...]) -> None:
    """Refuse pins that no layout can obey, by name and with the legal values.

    Raises:
        PlanInputError: naming the pin, the limit and a way out.
    """
    model = legality.model
    widest = max(pool.gpus_per_node for pool in pools)
    _check_positive(pins)
    if pins.tensor is not None:
        _check_tensor(legality, pins, pools, widest)
    if pins.pipeline is not None:
        found = legality.pipeline_violation(pins.pipeline)
        if found is not None:
            raise _refused("parallelism.pipeline", pins.pipeline, found, "use 1, or another model or version")
    if pins.data is not None and pins.data > 1 and not model.is_moe:
        raise _refused(
            "parallelism.data",
            pins.data,
            "data-parallel ranks of a dense model are whole copies",
            "leave it out and set spec.replicas",
        )
    if pins.expert and not model.is_moe:
        raise _refused("parallelism.expert", True, f"{model.name} has no experts", "leave it out")
    _check_partition(model, pins)


def _check_positive(pins: Pins) -> None:
    for name, value in (("tensor", pins.tensor), ("pipeline", pins.pipeline), ("data", pins.data)):
        if value is not None and not 1 <= value <= 4096:
            raise _refused(f"parallelism.{name}", value, "it is a whole number from 1 to 4096", "correct it")


def _check_tensor(legality: Legality, pins: Pins, pools: tuple[Pool, ...], widest: int) -> None:
    tensor = pins.tensor or 1
    reach = max(pool.gpus_per_node * pool.nodes for pool in pools)
    legal = legality.legal_tensor_sizes(reach if pins.cross_node_tensor else widest)
    listed = "the legal sizes here are " + ", ".join(map(str, legal))
    found = legality.tensor_violation(tensor)
    if found is None and tensor not in legal:
        found = legality.violation(Layout(tensor=tensor, expert=bool(pins.expert)))
    if found is not None:
        raise _refused(
            "parallelism.tensor", tensor, f"{found} ({listed})", "use one of these, or leave it out"
        )
    if tensor > widest and not pins.cross_node_tensor:
        raise _refused(
            "parallelism.tensor",
            tensor,
            f"a node has {widest} GPUs and tensor parallelism stays inside a node ({listed})",
            f"use {max(legal)} with pipeline stages over the nodes, or opt in to parallelism.crossNodeTensor",
        )
    if tensor > reach or (tensor > widest and all(tensor % pool.gpus_per_node for pool in pools)):
        raise _refused(
            "parallelism.tensor",
            tensor,
            f"{tensor} GPUs must fill whole nodes of {widest} and a replica may use {reach} GPUs",
            "use a multiple of the GPUs per node, or more nodes",
        )


def _check_partition(model: ModelFacts, pins: Pins) -> None:
    parts = pins.pipeline_partition
    if parts is None:
        return
    if pins.pipeline is not None and len(parts) != pins.pipeline:
        raise _refused(
            "parallelism.pipelinePartition",
            list(parts),
            f"it names {len(parts)} stages and parallelism.pipeline is {pins.pipeline}",
            "give one number of layers per stage",
        )
    if sum(parts) != model.layer_count or min(parts, default=0) < 1:
        raise _refused(
            "parallelism.pipelinePartition",
            list(parts),
            f"the layers must be positive and add up to the model's {model.layer_count}",
            "correct the numbers, or leave it out",
        )


def _refused(field: str, value: object, limit: str, remedy: str) -> PlanInputError:
    return PlanInputError(field=field, value=value, limit=limit, remedy=remedy)
