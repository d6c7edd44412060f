"""Facts of a model's architecture: what decides its size, its cache and how it may be split.

A model is a *pattern* over a few *kinds* of layers. That one shape holds plain decoders, sparse ones with
dense first layers, sliding-window mixes and state-space hybrids, and it keeps the arithmetic linear in the
number of kinds instead of the number of layers.
"""

from dataclasses import dataclass

from shardwright_planner.gpu import Gpu
from shardwright_planner.tensor_bytes import TensorBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention with its own keys and values per KV head: MHA, GQA and MQA, full or in a sliding window."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int  # head size of V; differs from K's in a few models
    window: int | None = None  # tokens; None = full attention
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    shared_kv: bool = False  # V is K: one projection, cached as both (Gemma 4's full layers)
    qk_norm_width: int = 0  # of norms over all heads together instead of one head (MiniMax-M2, OLMo)
    sinks: bool = False  # one learned scalar per head (gpt-oss)
    output_gate: bool = False  # the query projection is twice as wide (Qwen3-Next)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: one compressed vector per token, held whole by every tensor rank."""

    heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_dim: int
    qk_rope_dim: int
    value_dim: int
    index_heads: int = 0  # of the indexer that picks which tokens to attend to (DeepSeek-V3.2, GLM-5)
    index_dim: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba:
    """A Mamba mixer: a state per sequence instead of a cache per token.

    ``step_rank`` is that of Mamba-1's step projection, 0 for Mamba-2.
    """

    heads: int
    head_dim: int
    groups: int
    state_size: int
    conv_kernel: int
    step_rank: int = 0
    state_item_bytes: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """A gated-delta mixer (Qwen3-Next, Qwen3.5): a matrix of state per value head and sequence."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    state_item_bytes: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseMlp:
    """A feed-forward block; ``gated`` ones have three matrices, others two."""

    intermediate: int
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts, with the width of the experts that every token passes."""

    count: int
    per_token: int
    intermediate: int
    shared_intermediate: int = 0  # of all shared experts together
    shared_gate: bool = False
    latent: int = 0  # width that tokens are projected to before routed experts (Nemotron 3); 0 = hidden size
    router_bias: bool = False
    gated: bool = True
    bias: bool = False


Mixer = Attention | LatentAttention | Mamba | LinearAttention
FeedForward = DenseMlp | Experts


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """One kind of layer.

    ``beside`` is a dense block next to the experts (Gemma 4). ``unquantized`` names the modules that a
    quantized checkpoint leaves in 16 bits.
    """

    mixer: Mixer | None
    feed_forward: FeedForward | None
    beside: DenseMlp | None = None
    norms: int = 2  # vectors of the hidden size
    unquantized: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How a checkpoint stores its linear layers, out of its own ``quantization_config``.

    ``bytes_per_parameter`` counts scales and zero points in. ``group_size`` runs along the input of a matrix,
    ``block`` is (output, input). ``experts_only``: the other linear layers stay in 16 bits (MXFP4).
    """

    method: str
    bits: float
    bytes_per_parameter: float
    group_size: int | None = None
    block: tuple[int, int] | None = None
    expert_bytes_per_parameter: float | None = None  # of routed experts, where they have another format
    block_bytes_per_parameter: float | None = None  # of dense feed-forward blocks and shared experts likewise
    block_activation_bits: int | None = None
    head_bytes_per_parameter: float | None = None  # of the head likewise
    is_upper_bound: bool = False  # the config does not say which layers have the narrower of its formats
    experts_only: bool = False
    quantizes_head: bool = False
    activation_bits: int = 16
    integer_activations: bool = False  # INT8 and not FP8
    kv_cache_dtype: str | None = None  # the checkpoint carries a scheme for the cache
    pad_multiple: int = 1  # expert widths are padded to it (MXFP4)

    @property
    def head_rate(self) -> float | None:
        """Bytes per parameter of the head; None where it stays in 16 bits."""
        if not self.quantizes_head:
            return None
        own = self.head_bytes_per_parameter
        return self.bytes_per_parameter if own is None else own

    def flops(self, gpu: Gpu) -> float | None:
        """The rate of a GPU's products in the activations' own width; None where it takes 16 bits."""
        if self.activation_bits > 8:
            return None
        return gpu.narrow_flops(self.activation_bits, integer=self.integer_activations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """An encoder beside the language model, in 16 bits, on the first stage.

    ``split_parameters`` are those that tensor ranks share out (its MLPs); the rest is held by each of them.
    ``patch_elements`` live at once per patch while it runs; ``patches`` is how many patches profiling takes,
    0 where the tokens of a step decide.
    """

    parameters: int
    split_parameters: int
    patch_elements: int
    patches: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Everything the planner knows of a model.

    ``layers`` gives per layer the index into ``kinds``. ``tower`` is an encoder beside the language model.
    ``extra_parameters`` are in the checkpoint but not loaded for plain decoding (MTP layers).
    ``nominal_parameters`` is the rounded count people quote; only the simple estimator uses it.
    ``confidence`` is "high" for families that the arithmetic was checked on, else "low".
    ``source_digest`` is empty for catalogue models and names the given config.json otherwise.
    ``tensor_bytes`` is what the checkpoint's tensors weigh, where its files or their headers are at hand.
    """

    name: str
    architecture: str
    hidden_size: int
    kinds: tuple[LayerKind, ...]
    layers: tuple[int, ...]
    vocab_size: int
    tied_embeddings: bool
    max_position: int
    dtype: str
    quantization: Quantization | None = None
    tower: Tower | None = None
    extra_parameters: int = 0
    nominal_parameters: int | None = None
    confidence: str = "high"
    source_digest: str = ""
    tensor_bytes: TensorBytes | None = None

    @property
    def layer_count(self) -> int:
        """Decoder layers."""
        return len(self.layers)

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes to experts."""
        return any(isinstance(kind.feed_forward, Experts) for kind in self.kinds)

    @property
    def experts(self) -> Experts | None:
        """The first mixture of experts, or None."""
        return next((k.feed_forward for k in self.kinds if isinstance(k.feed_forward, Experts)), None)

    def head_rate(self, dtype_bytes: int) -> float:
        """Bytes per parameter of the head as it is loaded: those of the type, unless the scheme covers it."""
        covered = None if self.quantization is None else self.quantization.head_rate
        return dtype_bytes if covered is None else covered

    def counts(self, start: int, stop: int) -> tuple[int, ...]:
        """How many of layers ``start`` to ``stop - 1`` are of each kind."""
        if len(self.kinds) == 1:
            return (stop - start,)
        part = self.layers[start:stop]
        return tuple(part.count(kind) for kind in range(len(self.kinds)))
