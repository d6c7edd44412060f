"""The matrices of one layer: names, shapes and how tensor parallelism splits them.

Parameter counts, bytes per rank, the divisibility rules and the arithmetic of a step are all read off this
one list, so that they cannot disagree about what a layer is made of.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from shardwright_planner.model import (
    Attention,
    DenseMlp,
    Experts,
    LatentAttention,
    LayerKind,
    LinearAttention,
    Mamba,
)


class Split(StrEnum):
    """How a matrix is divided over tensor-parallel ranks."""

    COLUMN = "column"  # by output
    ROW = "row"  # by input
    KV_HEADS = "kvHeads"  # by output, down to one KV head, then copied
    REPLICATED = "replicated"


class Part(StrEnum):
    """What a matrix belongs to."""

    MIXER = "mixer"
    MLP = "mlp"
    EXPERT = "expert"
    SHARED = "shared"
    ROUTER = "router"
    VECTOR = "vector"  # norms, scalars, convolutions: never quantized


@dataclass(frozen=True, slots=True)
class Matrix:
    """``copies`` matrices of ``outputs`` x ``inputs``, named as in a checkpoint below the layer."""

    name: str
    part: Part
    outputs: int
    inputs: int
    split: Split
    copies: int = 1
    bias: bool = False
    heads: int = 0  # KV heads for KV_HEADS
    derived: bool = False  # made while loading: occupies memory, is no parameter of the checkpoint

    @property
    def parameters(self) -> int:
        """Parameters in the checkpoint."""
        if self.derived:
            return 0
        return self.copies * (self.outputs * self.inputs + (self.outputs if self.bias else 0))


def layer_matrices(kind: LayerKind, hidden: int) -> tuple[Matrix, ...]:
    """Every matrix of a layer of that kind, mixer first."""
    return tuple(_mixer(kind, hidden)) + tuple(_feed_forward(kind, hidden)) + tuple(_norms(kind, hidden))


def _norms(kind: LayerKind, hidden: int) -> Iterator[Matrix]:
    if kind.norms:
        yield _vector("norms", kind.norms * hidden)


def _vector(name: str, size: int, split: Split = Split.REPLICATED) -> Matrix:
    return Matrix(name, Part.VECTOR, size, 1, split)


def _mixer(kind: LayerKind, hidden: int) -> Iterator[Matrix]:
    match kind.mixer:
        case Attention():
            yield from _attention(kind.mixer, hidden)
        case LatentAttention():
            yield from _latent(kind.mixer, hidden)
        case Mamba():
            yield from _mamba(kind.mixer, hidden)
        case LinearAttention():
            yield from _linear_attention(kind.mixer, hidden)
        case None:
            return


def _attention(a: Attention, hidden: int) -> Iterator[Matrix]:
    queries = a.heads * a.head_dim * (2 if a.output_gate else 1)
    yield Matrix("self_attn.q_proj", Part.MIXER, queries, hidden, Split.COLUMN, bias=a.qkv_bias)
    sides = (("k_proj", a.head_dim),) if a.shared_kv else (("k_proj", a.head_dim), ("v_proj", a.value_dim))
    for name, width in sides:
        yield Matrix(
            f"self_attn.{name}",
            Part.MIXER,
            a.kv_heads * width,
            hidden,
            Split.KV_HEADS,
            bias=a.qkv_bias,
            heads=a.kv_heads,
        )
    yield Matrix("self_attn.o_proj", Part.MIXER, hidden, a.heads * a.value_dim, Split.ROW, bias=a.output_bias)
    if a.qk_norm_width:
        yield _vector("self_attn.qk_norm", a.qk_norm_width)
    elif a.qk_norm:
        yield _vector("self_attn.qk_norm", 2 * a.head_dim)
    if a.sinks:
        yield _vector("self_attn.sinks", a.heads, Split.COLUMN)


def _latent(a: LatentAttention, hidden: int) -> Iterator[Matrix]:
    queries = a.heads * (a.qk_nope_dim + a.qk_rope_dim)
    if a.q_lora_rank:
        yield Matrix("self_attn.q_a_proj", Part.MIXER, a.q_lora_rank, hidden, Split.REPLICATED)
        yield _vector("self_attn.q_a_layernorm", a.q_lora_rank)
        yield Matrix("self_attn.q_b_proj", Part.MIXER, queries, a.q_lora_rank, Split.COLUMN)
    else:
        yield Matrix("self_attn.q_proj", Part.MIXER, queries, hidden, Split.COLUMN)
    latent = a.kv_lora_rank + a.qk_rope_dim
    yield Matrix("self_attn.kv_a_proj_with_mqa", Part.MIXER, latent, hidden, Split.REPLICATED)
    yield _vector("self_attn.kv_a_layernorm", a.kv_lora_rank)
    expanded = a.heads * (a.qk_nope_dim + a.value_dim)
    yield Matrix("self_attn.kv_b_proj", Part.MIXER, expanded, a.kv_lora_rank, Split.COLUMN)
    yield Matrix("self_attn.o_proj", Part.MIXER, hidden, a.heads * a.value_dim, Split.ROW)
    if a.index_dim:
        yield from _indexer(a, hidden)
    # vLLM keeps 16-bit copies of the KV-up projection for the absorbed decode path (MLAAttention).
    yield Matrix("absorbed", Part.VECTOR, expanded, a.kv_lora_rank, Split.COLUMN, derived=True)


def _indexer(a: LatentAttention, hidden: int) -> Iterator[Matrix]:
    # Whole on every tensor rank (models/deepseek_v2.py, Indexer).
    name = "self_attn.indexer"
    queries = a.index_heads * a.index_dim
    yield Matrix(f"{name}.wq_b", Part.MIXER, queries, a.q_lora_rank or hidden, Split.REPLICATED)
    yield Matrix(f"{name}.wk", Part.MIXER, a.index_dim, hidden, Split.REPLICATED)
    yield Matrix(f"{name}.weights_proj", Part.ROUTER, a.index_heads, hidden, Split.REPLICATED)
    yield _vector(f"{name}.k_norm", 2 * a.index_dim)


def _mamba(m: Mamba, hidden: int) -> Iterator[Matrix]:
    if m.step_rank:
        yield from _first_mamba(m, hidden)
        return
    inner = m.heads * m.head_dim
    convolved = inner + 2 * m.groups * m.state_size
    yield Matrix("mixer.in_proj", Part.MIXER, inner + convolved + m.heads, hidden, Split.COLUMN)
    yield _vector("mixer.conv1d", convolved * (m.conv_kernel + 1), Split.COLUMN)
    yield _vector("mixer.scalars", 3 * m.heads, Split.COLUMN)
    yield _vector("mixer.norm", inner, Split.COLUMN)
    yield Matrix("mixer.out_proj", Part.MIXER, hidden, inner, Split.ROW)


def _first_mamba(m: Mamba, hidden: int) -> Iterator[Matrix]:
    inner, rank, state = m.heads, m.step_rank, m.state_size
    yield Matrix("mamba.in_proj", Part.MIXER, 2 * inner, hidden, Split.COLUMN)
    yield _vector("mamba.conv1d", inner * (m.conv_kernel + 1), Split.COLUMN)
    yield Matrix("mamba.x_proj", Part.MIXER, rank + 2 * state, inner, Split.ROW)
    yield Matrix("mamba.dt_proj", Part.MIXER, inner, rank, Split.COLUMN, bias=True)
    yield _vector("mamba.scalars", inner * (state + 1), Split.COLUMN)
    yield _vector("mamba.norms", rank + 2 * state)
    yield Matrix("mamba.out_proj", Part.MIXER, hidden, inner, Split.ROW)


def _linear_attention(a: LinearAttention, hidden: int) -> Iterator[Matrix]:
    keys, values = a.key_heads * a.key_dim, a.value_heads * a.value_dim
    yield Matrix("linear_attn.in_proj_qkvz", Part.MIXER, 2 * keys + 2 * values, hidden, Split.COLUMN)
    yield Matrix("linear_attn.in_proj_ba", Part.MIXER, 2 * a.value_heads, hidden, Split.COLUMN)
    yield _vector("linear_attn.conv1d", (2 * keys + values) * a.conv_kernel, Split.COLUMN)
    yield _vector("linear_attn.scalars", 2 * a.value_heads, Split.COLUMN)
    yield _vector("linear_attn.norm", a.value_dim)
    yield Matrix("linear_attn.out_proj", Part.MIXER, hidden, values, Split.ROW)


def _feed_forward(kind: LayerKind, hidden: int) -> Iterator[Matrix]:
    match kind.feed_forward:
        case DenseMlp() as mlp:
            yield from _dense_mlp(mlp, hidden)
        case Experts() as moe:
            # Next to a dense block the experts are a block of their own (Gemma 4).
            prefix = "experts" if kind.beside is not None else "mlp.experts"
            yield Matrix("mlp.gate", Part.ROUTER, moe.count, hidden, Split.REPLICATED, bias=moe.router_bias)
            yield from _mlp(
                prefix,
                Part.EXPERT,
                moe.intermediate,
                moe.latent or hidden,
                gated=moe.gated,
                bias=moe.bias,
                copies=moe.count,
            )
            if moe.latent:
                yield Matrix("mlp.fc1_latent_proj", Part.SHARED, moe.latent, hidden, Split.REPLICATED)
                yield Matrix("mlp.fc2_latent_proj", Part.SHARED, hidden, moe.latent, Split.REPLICATED)
            if moe.shared_intermediate:
                yield from _mlp(
                    "mlp.shared_expert", Part.SHARED, moe.shared_intermediate, hidden, gated=moe.gated
                )
            if moe.shared_gate:
                yield Matrix("mlp.shared_expert_gate", Part.ROUTER, 1, hidden, Split.REPLICATED)
            if kind.beside is not None:
                yield from _dense_mlp(kind.beside, hidden)
        case None:
            return


def _dense_mlp(mlp: DenseMlp, hidden: int) -> Iterator[Matrix]:
    yield from _mlp("mlp", Part.MLP, mlp.intermediate, hidden, gated=mlp.gated, bias=mlp.bias)


def _mlp(
    prefix: str,
    part: Part,
    intermediate: int,
    hidden: int,
    *,
    gated: bool,
    bias: bool = False,
    copies: int = 1,
) -> Iterator[Matrix]:
    inward = ("gate_proj", "up_proj") if gated else ("up_proj",)
    for name in inward:
        yield Matrix(f"{prefix}.{name}", part, intermediate, hidden, Split.COLUMN, copies=copies, bias=bias)
    yield Matrix(f"{prefix}.down_proj", part, hidden, intermediate, Split.ROW, copies=copies, bias=bias)
