"""How many kernels a layer launches in a decode step, counted from its parts.

At small batches a step's time is not bytes but launches, and those differ: a sparse layer with block-wise
8-bit weights starts three times as many kernels as a plain one. Counting them keeps one constant, the time
per kernel, for all families. Counted for vLLM's compiled path (norms, rotary positions and activations are
one kernel each; 8-bit activations by block need one more per product, others are fused into the norm).
"""

from shardwright_planner.model import (
    Attention,
    DenseMlp,
    Experts,
    LatentAttention,
    LayerKind,
    LinearAttention,
    Mamba,
    Quantization,
)


def kernel_count(kind: LayerKind, scheme: Quantization | None) -> int:
    """Kernels of one layer of that kind."""
    quantizes = scheme is not None and scheme.block is not None and scheme.activation_bits <= 8
    products, others = _mixer(kind)
    more_products, more_others = _feed_forward(kind)
    norms = min(kind.norms, 4)
    return (products + more_products) * (2 if quantizes else 1) + others + more_others + norms


def _mixer(kind: LayerKind) -> tuple[int, int]:
    # (products with weights, everything else)
    match kind.mixer:
        case Attention() as a:
            norms = 2 if a.qk_norm_width else int(a.qk_norm)
            return 2, 3 + norms  # rotary positions, cache write, attention
        case LatentAttention() as a:
            products = (3 if a.q_lora_rank else 2) + 1
            others = 8 + (5 if a.index_dim else 0)  # two norms, positions, write, two absorbed, two attention
            return products, others
        case Mamba() | LinearAttention():
            return 2, 6
        case None:
            return 0, 0


def _feed_forward(kind: LayerKind) -> tuple[int, int]:
    match kind.feed_forward:
        case DenseMlp():
            return 2, 1
        case Experts() as moe:
            shared = 2 if moe.shared_intermediate else 0
            dense = 2 if kind.beside is not None else 0
            # Router, choice of experts, sorting of tokens (two), activation, weighted sum.
            return 2 + shared + dense, 6 + (shared + dense) // 2 + int(moe.shared_gate)
        case None:
            return 0, 0
