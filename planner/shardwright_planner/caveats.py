"""What a reader of the plan should be aware of although it is the best one."""

from collections.abc import Iterator

from shardwright_planner.evaluation import Candidate, gib
from shardwright_planner.model import Attention, LatentAttention

UNEVEN = 0.05
EIGHT_BIT_METHODS = frozenset({"fp8", "fbgemm_fp8", "modelopt"})


def caveats(chosen: Candidate) -> Iterator[str]:
    """Warnings about a candidate, most consequential first."""
    yield from _pipeline(chosen)
    yield from _attention(chosen)
    yield from _kernels(chosen)
    latency = chosen.latency
    if latency is not None and latency.prefill_share > 0.5:
        yield (
            f"Prefill takes {100 * latency.prefill_share:.0f} % of the time, so that the time to first token "
            "is a low-confidence figure."
        )
    if chosen.setting.model.confidence != "high":
        yield "The model's family is planned from generic fields, with lower confidence."
    sequences = chosen.setting.max_num_seqs * chosen.layout.data
    if sequences < chosen.setting.service_level.concurrency:
        yield f"The engine runs at most {sequences} sequences at once, fewer than the stated concurrency."


def _pipeline(chosen: Candidate) -> Iterator[str]:
    layout, fit = chosen.layout, chosen.fit
    if layout.pipeline == 1 or fit is None:
        return
    where = "over nodes " if layout.nodes > 1 else ""
    yield (
        f"Pipeline parallelism {where}has next to no public measured points: latencies are derived from "
        "single-stage measurements."
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
    if scheme is not None and scheme.method in EIGHT_BIT_METHODS and gpu.flops_8bit is None:
        yield f"{gpu.name} has no FP8 units: FP8 weights save memory only, arithmetic runs in 16 bits."
    if layout.crosses_nodes:
        yield "Tensor parallelism crosses nodes: every layer waits twice for the network."
    elif layout.tensor > max(1, gpu.nvlink_domain):
        yield f"TP {layout.tensor} runs over PCIe on {gpu.name}, which makes AllReduce slow."
    if setting.pool.nic_bytes_per_s is None and layout.nodes > 1:
        rate = setting.nic_bytes_per_s * 8 / 1e9
        yield f"The nodes' network rate is not known; {rate:.0f} Gbit/s per node is assumed."
