"""What the engine holds besides weights and cache: peak activation, CUDA and NCCL buffers, CUDA graphs.

vLLM measures these in a profiling run and takes what is left for the cache (v1/worker/gpu_worker.py), so the
planner has to foresee the run. Its peak is either the network on a full step or the sampler on a full batch
of logits; which constants apply depends on the engine's version. All constants are fitted by
tests/planner/calibration.py on published start-up logs.
"""

from dataclasses import dataclass

from shardwright_planner.gpu import GIB
from shardwright_planner.layout import Layout
from shardwright_planner.setting import Setting
from shardwright_planner.weights import WeightTable

# Hidden-size tensors that live at once beside the widest part of a layer: input, residual, output, a copy.
HIDDEN_COPIES = 4
# Encoder outputs of a full step in the cache of the profiling run, and their copy merged into the prompt.
ENCODER_COPIES = 2
PATCHES_PER_TOKEN = 4
# Larger batches of one expert call are worked off in chunks of this many tokens (VLLM_FUSED_MOE_CHUNK_SIZE).
EXPERT_CHUNK_TOKENS = 16384
# CUDA graphs at the default capture sizes: fixed, per layer of a stage, and for sparse layers on top.
GRAPH_BYTES = int(0.34 * GIB)
GRAPH_LAYER_BYTES = int(0.017 * GIB)
GRAPH_EXPERTS_BYTES = int(0.65 * GIB)
LARGEST_CAPTURE = 512
# In use before the engine measures: the context, and with NCCL its channels (same logs).
START_BYTES = int(0.51 * GIB)
START_WITH_NCCL_BYTES = int(1.55 * GIB)
START_EXPERTS_BYTES = int(0.46 * GIB)  # sparse models over several ranks, on top
START_SLACK_BYTES = int(0.4 * GIB)  # what a start-up that ran out had left; others ran with 0.64 (same logs)
# NCCL's channels over PCIe: no multicast and no custom AllReduce buffers (start-ups on 24 GB boards).
PCIE_NCCL_BYTES = int(0.15 * GIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Bytes outside weights, activations and cache on one rank.

    ``graph_bytes`` and ``graph_layer_bytes`` count against the utilization only where the version subtracts
    them; elsewhere they must find room in what the utilization leaves. So must ``unprofiled_bytes``: buffers
    that the kernels of MXFP4 experts take after the profiling run.
    """

    context_bytes: int
    graph_bytes: int
    graph_layer_bytes: int
    subtracted: bool
    start_bytes: int
    unprofiled_bytes: int

    def counted(self, layers: int) -> int:
        """What counts against the utilization on a stage of that many layers."""
        return self.context_bytes + (self.graphs(layers) if self.subtracted else 0)

    def beside(self, layers: int) -> int:
        """What is needed beside the utilization.

        Versions that do not subtract CUDA graphs start and then run out of memory while capturing them.
        """
        needed = self.start_bytes + self.unprofiled_bytes
        return needed if self.subtracted else needed + self.graphs(layers) + START_SLACK_BYTES

    def graphs(self, layers: int) -> int:
        """CUDA graphs of a stage."""
        return self.graph_bytes + self.graph_layer_bytes * layers


def overhead_of(setting: Setting, layout: Layout) -> Overhead:
    """Overheads of each rank of a layout."""
    memory = setting.engine.memory
    ranks = layout.tensor * layout.data
    on_nvlink = setting.pool.gpu.nvlink_domain > 1
    context = memory.context_bytes
    start = START_BYTES
    if ranks > 1 and not on_nvlink:
        context += PCIE_NCCL_BYTES
    elif ranks > 1:
        context = memory.nccl_bytes + memory.nccl_rank_bytes * min(ranks, 16)
        start = START_WITH_NCCL_BYTES + (START_EXPERTS_BYTES if setting.model.is_moe else 0)
    # Graphs are captured up to twice the sequences of a step and share one pool, so that the largest batch
    # sets most of its size.
    share = min(1.0, max(0.1, 2 * setting.max_num_seqs / LARGEST_CAPTURE))
    experts = GRAPH_EXPERTS_BYTES if setting.model.is_moe else 0
    return Overhead(
        context_bytes=context,
        graph_bytes=int(share * (GRAPH_BYTES + experts)),
        graph_layer_bytes=int(share * GRAPH_LAYER_BYTES),
        subtracted=setting.engine.graphs_subtracted,
        start_bytes=start,
        unprofiled_bytes=_expert_buffers(setting, layout) if _is_unprofiled(setting) else 0,
    )


def activation_bytes(setting: Setting, table: WeightTable, layout: Layout) -> tuple[int, int, int]:
    """Peak activation of the first stage (encoders), of those between, and of the last one (the sampler).

    With one stage only the last figure counts, the encoder included.
    """
    model, size = setting.model, setting.dtype_bytes
    tokens, rows = setting.max_num_batched_tokens, min(setting.max_num_seqs, setting.max_num_batched_tokens)
    hidden = tokens * model.hidden_size * size
    memory = setting.engine.memory
    kept = workspace = _workspace(setting, layout)
    network = tokens * size * (HIDDEN_COPIES * model.hidden_size + table.widest(layout.tensor))
    if memory.workspace_kept:
        workspace = 0
    else:
        kept = 0
    if layout.pipeline > 1:
        kept += 2 * hidden  # hidden state and residual of the neighbour stage
    sampler = hidden + int(rows * model.vocab_size * (4 * memory.sampler_copies + size))
    between = network + workspace
    encoder, outputs = 0, 0
    if model.tower is not None:
        outputs = ENCODER_COPIES * hidden
        patches = model.tower.patches or tokens * PATCHES_PER_TOKEN
        encoder = patches * model.tower.patch_elements * size
    first = kept + outputs + max(between, encoder)
    last = kept + max(between, sampler)
    if layout.pipeline == 1:
        last = kept + outputs + max(between, sampler, encoder)
    return first, kept + between, last


def _workspace(setting: Setting, layout: Layout) -> int:
    # Data-parallel attention gathers every rank's tokens before the experts and scatters them afterwards
    # (all-gather and reduce-scatter, the default all-to-all backend).
    model, size = setting.model, setting.dtype_bytes
    if model.experts is None:
        return 0
    gathered = setting.max_num_batched_tokens * layout.data
    exchange = 2 * gathered * model.hidden_size * size if layout.data > 1 else 0
    return exchange + (0 if _is_unprofiled(setting) else _expert_buffers(setting, layout))


def _is_unprofiled(setting: Setting) -> bool:
    # Start-up logs of gpt-oss show no workspace, and one start-up ran out of memory right after them.
    scheme = setting.model.quantization
    return scheme is not None and scheme.method == "mxfp4"


def _expert_buffers(setting: Setting, layout: Layout) -> int:
    model = setting.model
    moe = model.experts
    if moe is None:
        return 0
    width = -(-moe.intermediate // layout.expert_tensor)
    inward = max(2 * width, model.hidden_size) + max(width, model.hidden_size)
    tokens = min(setting.max_num_batched_tokens * layout.data, EXPERT_CHUNK_TOKENS)
    return tokens * moe.per_token * inward * setting.dtype_bytes
