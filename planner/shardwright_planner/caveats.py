"""What a reader of the plan should be aware of although it is the best one."""

from collections.abc import Iterator

from shardwright_planner.choice import choose
from shardwright_planner.evaluation import Candidate, gib, judged, timed
from shardwright_planner.model import Attention, LatentAttention
from shardwright_planner.request import Pins

UNEVEN = 0.05


def caveats(chosen: Candidate, pins: Pins) -> Iterator[str]:
    """Warnings about a candidate, most consequential first. ``pins`` are those that it had to obey."""
    yield from _too_large(chosen, pins)
    yield from _pipeline(chosen)
    yield from _attention(chosen)
    yield from _kernels(chosen)
    yield from _network(chosen)
    yield from _first_token(chosen)
    scheme = chosen.setting.model.quantization
    if scheme is not None and scheme.is_upper_bound:
        yield (
            "The checkpoint mixes formats and its config does not say which layer has which: all are counted "
            "in 8 bits, so that it may need less. Its real tensor sizes (--model-dir, --hub) tell."
        )
    if chosen.setting.model.confidence != "high":
        family = chosen.setting.model.architecture or "The model's family"
        yield f"{family} is planned from the generic fields of its config, with lower confidence."
    sequences = chosen.setting.max_num_seqs * chosen.layout.data
    if sequences < chosen.setting.service_level.concurrency:
        yield f"The engine runs at most {sequences} sequences at once, fewer than the stated concurrency."


def _too_large(chosen: Candidate, pins: Pins) -> Iterator[str]:
    # Without pins the choice takes the fewest GPUs by itself.
    if not chosen.meets or (pins.tensor, pins.pipeline, pins.data) == (None, None, None):
        return
    free = Pins(cross_node_tensor=pins.cross_node_tensor)
    smaller = choose(timed(judged(chosen.bench, chosen.setting.pool, free)))
    if smaller is not None and smaller.meets and smaller.layout.world < chosen.layout.world:
        enough = "holds the load" if chosen.setting.has_no_goals else "would meet the SLO"
        yield (
            f"Over-parallelised: {smaller.layout.label()} on {_gpus(smaller.layout.world)} {enough}; the "
            f"pinned sizes take {chosen.layout.world}."
        )


def _pipeline(chosen: Candidate) -> Iterator[str]:
    layout, fit = chosen.layout, chosen.fit
    if layout.pipeline == 1 or fit is None:
        return
    if layout.nodes > 1:
        yield (
            "Pipeline parallelism over nodes is unmeasured: four public memory logs have more than one "
            "stage, none of them over nodes. Latencies are derived from single-stage measurements."
        )
    else:
        yield (
            "Pipeline parallelism is hardly measured: four public memory logs have more than one stage. "
            "Latencies are derived from single-stage measurements."
        )
    weights = [stage.weights for stage in fit.stages]
    spread = max(weights) / min(weights) - 1.0
    if spread > UNEVEN:
        yield (
            f"Stages are uneven: the heaviest holds {100 * spread:.0f} % more weights per GPU than the "
            f"lightest ({gib(max(weights))} against {gib(min(weights))} GiB)."
        )
    if not layout.own_partition:
        yield f"The layers are split as {','.join(map(str, layout.partition))} instead of vLLM's own split."


def _attention(chosen: Candidate) -> Iterator[str]:
    tensor = chosen.layout.tensor
    for kind in chosen.setting.model.kinds:
        match kind.mixer:
            case Attention() as a if a.kv_heads < tensor:
                yield (
                    f"{a.kv_heads} KV heads over TP {tensor}: each is held by {tensor // a.kv_heads} ranks, "
                    "so that a wider TP does not enlarge the cache."
                )
                return
            case LatentAttention() if tensor > 1:
                yield f"The compressed cache is held in full by each of the {tensor} tensor ranks."
                return
            case _:
                pass


def _kernels(chosen: Candidate) -> Iterator[str]:
    setting, layout = chosen.setting, chosen.layout
    gpu, scheme = setting.pool.gpu, setting.model.quantization
    if scheme is not None and scheme.activation_bits <= 8 and scheme.flops(gpu) is None:
        kind = f"{'INT' if scheme.integer_activations else 'FP'}{scheme.activation_bits}"
        yield f"{gpu.name} has no {kind} units: {kind} weights save memory only, arithmetic runs in 16 bits."
    if layout.crosses_nodes:
        yield "Tensor parallelism crosses nodes: every layer waits twice for the network."
    elif layout.tensor > max(1, gpu.nvlink_domain):
        yield f"TP {layout.tensor} runs over PCIe on {gpu.name}, which makes AllReduce slow."


def _network(chosen: Candidate) -> Iterator[str]:
    setting, layout = chosen.setting, chosen.layout
    if layout.nodes == 1:
        return
    crossing = "AllReduce and sends" if layout.crosses_nodes else "exchanges and sends"
    if layout.data > 1:
        yield (
            "Expert parallelism over nodes is unmeasured: every sparse layer waits twice for the network, "
            "and no published point has it."
        )
    if setting.pool.rdma is False:
        yield (
            f"RDMA is absent: {crossing} between nodes go through the kernel's TCP, slower and less even "
            "than predicted."
        )
    if setting.pool.nic_bytes_per_s is None:
        rate = setting.nic_bytes_per_s * 8 / 1e9
        known = "network rate is" if setting.pool.rdma is not None else "network rate and RDMA are"
        yield f"The nodes' {known} not known; {rate:.0f} Gbit/s per node with RDMA is assumed."
    elif setting.pool.rdma is None:
        yield "Whether the nodes have RDMA is not known; it is assumed."


def _first_token(chosen: Candidate) -> Iterator[str]:
    latency = chosen.latency
    if latency is not None and latency.prefill_share > 0.5:
        yield (
            f"The time to first token has low confidence: prefill takes {100 * latency.prefill_share:.0f} % "
            "of the time, where queueing decides it."
        )


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
