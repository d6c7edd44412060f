"""From a config's keys to the kind of every layer.

Families say in many ways which layers are sparse, windowed or recurrent: a list of types, an interval, a
pattern string, a first dense run. Each way is one small function here; the result is one kind per layer.
"""

from dataclasses import replace

from shardwright_planner.errors import PlanInputError
from shardwright_planner.keys import Keys
from shardwright_planner.model import (
    Attention,
    DenseMlp,
    Experts,
    FeedForward,
    LatentAttention,
    LayerKind,
    Mixer,
)
from shardwright_planner.recurrent import check_readable, recurrent_layers, recurrent_mixer, second_mamba

MOST_LAYERS = 2048
ROUTED = ("num_experts_per_tok", "experts_per_token", "top_k_experts", "moe_topk", "moe_k")
# Families whose feed-forward block has two matrices instead of three.
UNGATED = frozenset(
    {
        "bloom",
        "falcon",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "gptj",
        "mpt",
        "nemotron",
        "nemotron_h",
        "opt",
        "phi",
    }
    | {"starcoder2"}
)
# Families that put a bias on the query, key and value projections without a key that says so.
QKV_BIAS = frozenset({"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "gpt2", "opt", "phi", "gpt_bigcode"})
QK_NORM_PREFIXES = ("qwen3", "gemma3", "gemma4")
FOUR_NORM_PREFIXES = ("gemma2", "gemma3", "gemma4")
# Families whose attention_bias is that of queries, keys and values alone.
NO_OUTPUT_BIAS = frozenset({"glm4", "glm4_moe", *QKV_BIAS})


def layer_kinds(keys: Keys, model_type: str) -> list[LayerKind]:
    """The kind of every layer, in order.

    Raises:
        PlanInputError: if a size that the family needs is missing.
    """
    check_readable(keys, model_type)
    pattern = keys.text("hybrid_override_pattern") or _pattern(keys.names("layers_block_type"))
    if pattern and model_type.startswith("nemotron_h"):
        return _from_pattern(keys, model_type, pattern)
    count = keys.size("num_hidden_layers", "n_layer", "num_layers", "n_layers")
    _check_count(count, keys)
    norms = 4 if model_type.startswith(FOUR_NORM_PREFIXES) or model_type == "glm4" else 2
    mixers = _mixers(keys, model_type, count)
    dense, sparse = _dense(keys, model_type), _experts(keys, model_type)
    kinds = []
    for index in range(count):
        feed_forward: FeedForward | None = sparse if sparse and _is_sparse(keys, index) else dense
        beside = dense if keys.flag("enable_moe_block") and feed_forward is sparse else None
        kinds.append(
            LayerKind(
                mixer=mixers[index],
                feed_forward=feed_forward,
                beside=beside,
                norms=norms + 3 * (beside is not None),
            )
        )
    return kinds


def _pattern(types: tuple[str, ...]) -> str:
    letters = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
    return "".join(letters.get(kind, "") for kind in types)


def _from_pattern(keys: Keys, model_type: str, pattern: str) -> list[LayerKind]:
    # Nemotron-H: each layer is one block alone: M a Mamba mixer, * attention, - an MLP, E experts.
    attention, dense = _attention(keys, model_type), _dense(keys, model_type)
    experts = _experts(keys, model_type)
    single = {
        "M": lambda: LayerKind(mixer=second_mamba(keys), feed_forward=None, norms=1),
        "*": lambda: LayerKind(mixer=attention, feed_forward=None, norms=1),
        "-": lambda: LayerKind(mixer=None, feed_forward=dense, norms=1),
        "E": lambda: LayerKind(mixer=None, feed_forward=experts or dense, norms=1),
    }
    letters = [letter for letter in pattern if letter in single]
    _check_count(len(letters), keys)
    return [single[letter]() for letter in letters]


def _check_count(count: int, keys: Keys) -> None:
    # Before anything is made for each layer: a billion of them took an operator all its memory.
    if not 1 <= count <= MOST_LAYERS:
        raise PlanInputError(
            field=f"{keys.path}.num_hidden_layers",
            value=count,
            limit=f"a model has 1 to {MOST_LAYERS} layers",
            remedy="check the config against the model's own config.json",
        )


def _mixers(keys: Keys, model_type: str, count: int) -> list[Mixer]:
    if keys.has("kv_lora_rank"):
        return [_latent(keys)] * count
    full = _attention(keys, model_type)
    local, wide = _local_attention(keys, full), _global_attention(keys, full)
    windows = _windows(keys, model_type, count)
    states = recurrent_layers(keys, count)
    recurrent = recurrent_mixer(keys) if states else None
    mixers: list[Mixer] = []
    for index in range(count):
        if recurrent is not None and index in states:
            mixers.append(recurrent)
        else:
            mixers.append(replace(local if windows[index] else wide, window=windows[index]))
    return mixers


def _local_attention(keys: Keys, full: Attention) -> Attention:
    # MiMo-V2: windowed layers have more KV heads than those that attend to everything.
    kv_heads = keys.optional_size("swa_num_key_value_heads")
    if not kv_heads:
        return full
    return replace(
        full,
        heads=keys.optional_size("swa_num_attention_heads") or full.heads,
        kv_heads=kv_heads,
        head_dim=keys.optional_size("swa_head_dim") or full.head_dim,
        value_dim=keys.optional_size("swa_v_head_dim") or full.value_dim,
    )


def _global_attention(keys: Keys, local: Attention) -> Attention:
    # Gemma 4: layers that attend to everything have heads of another size and number than windowed ones.
    head_dim = keys.optional_size("global_head_dim")
    if not head_dim:
        return local
    return replace(
        local,
        kv_heads=keys.optional_size("num_global_key_value_heads") or local.kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        shared_kv=keys.flag("attention_k_eq_v"),
    )


def _attention(keys: Keys, model_type: str) -> Attention:
    heads = keys.size("num_attention_heads", "n_head", "num_heads", "n_heads")
    kv_heads = keys.optional_size("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
    if kv_heads is None:
        kv_heads = 1 if keys.flag("multi_query") else heads
    hidden = keys.size("hidden_size", "n_embd", "d_model")
    head_dim = keys.optional_size("head_dim", "attention_head_dim") or hidden // heads
    bias = keys.flag("attention_bias") or keys.flag("qkv_bias") or model_type in QKV_BIAS
    return Attention(
        heads=heads,
        kv_heads=kv_heads or heads,
        head_dim=head_dim,
        value_dim=keys.optional_size("v_head_dim") or head_dim,
        qkv_bias=bias,
        output_bias=keys.flag("attention_bias") and model_type not in NO_OUTPUT_BIAS,
        qk_norm=model_type.startswith(QK_NORM_PREFIXES) or keys.flag("use_qk_norm"),
        qk_norm_width=_norm_width(keys, model_type, heads, kv_heads or heads, head_dim),
        sinks=model_type == "gpt_oss",
        output_gate=keys.flag("attn_output_gate") or model_type == "qwen3_next",
    )


def _norm_width(keys: Keys, model_type: str, heads: int, kv_heads: int, head_dim: int) -> int:
    per_layer = keys.text("qk_norm_type") == "per_layer" or model_type in {"olmo2", "olmo3"}
    return (heads + kv_heads) * head_dim if per_layer else 0


def _latent(keys: Keys) -> LatentAttention:
    return LatentAttention(
        heads=keys.size("num_attention_heads"),
        q_lora_rank=keys.optional_size("q_lora_rank"),
        kv_lora_rank=keys.size("kv_lora_rank"),
        qk_nope_dim=keys.size("qk_nope_head_dim"),
        qk_rope_dim=keys.size("qk_rope_head_dim"),
        value_dim=keys.size("v_head_dim"),
        index_heads=keys.optional_size("index_n_heads") or 0,
        index_dim=keys.optional_size("index_head_dim") or 0,
    )


def _windows(keys: Keys, model_type: str, count: int) -> list[int | None]:
    window = keys.optional_size("sliding_window", "attention_chunk_size", "sliding_window_size")
    if not window or keys.values.get("use_sliding_window") is False:
        return [None] * count
    types = keys.names("layer_types")
    if len(types) == count:
        return [window if kind.startswith(("sliding", "chunked")) else None for kind in types]
    pattern = keys.sizes("hybrid_layer_pattern")
    if len(pattern) == count:
        return [window if windowed else None for windowed in pattern]
    no_rope = keys.sizes("no_rope_layers")
    if model_type.startswith("llama4"):
        # Layers with rotary positions attend in chunks; every fourth has none and attends to all.
        flags = no_rope if len(no_rope) == count else [int((i + 1) % 4 != 0) for i in range(count)]
        return [window if flag else None for flag in flags]
    if model_type.startswith(("gemma2", "gpt_oss")):
        return [window if i % 2 == 0 else None for i in range(count)]
    if model_type.startswith("gemma3"):
        every = keys.optional_size("sliding_window_pattern") or 6
        return [window if (i + 1) % every else None for i in range(count)]
    return [window] * count


def _dense(keys: Keys, model_type: str) -> DenseMlp:
    if model_type == "granitemoehybrid" and not keys.optional_size("num_local_experts"):
        return DenseMlp(intermediate=keys.size("shared_intermediate_size"))
    names = (
        "dense_intermediate_size",
        "intermediate_size_mlp",
        "intermediate_size",
        "n_inner",
        "ffn_hidden_size",
        "ffn_dim",
    )
    width = keys.optional_size(*names) or 4 * keys.size("hidden_size", "n_embd", "d_model")
    return DenseMlp(
        intermediate=width,
        gated=model_type not in UNGATED,
        bias=keys.flag("mlp_bias") or model_type in {"gpt2", "opt", "phi", "gpt_bigcode", "starcoder2"},
    )


def _experts(keys: Keys, model_type: str) -> Experts | None:
    count = keys.optional_size("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    if not count or count < 2:
        return None
    width = keys.size("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
    shared = keys.optional_size(
        "moe_shared_expert_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size"
    )
    if shared is None:
        shared = (keys.optional_size("n_shared_experts", "num_shared_experts") or 0) * width
    if model_type.startswith("llama4"):
        shared = width
    per_token = keys.size(*ROUTED)
    if per_token > count:
        raise PlanInputError(
            field=f"{keys.path}.{next(name for name in ROUTED if keys.has(name))}",
            value=per_token,
            limit=f"a layer has {count} experts",
            remedy="check the config against the model's own config.json",
        )
    return Experts(
        count=count,
        per_token=per_token,
        intermediate=width,
        shared_intermediate=shared,
        shared_gate=model_type.startswith(("qwen2_moe", "qwen3_next", "qwen3_5_moe")),
        latent=keys.optional_size("moe_latent_size") or 0,
        router_bias=_router_bias(keys, model_type),
        gated=model_type not in UNGATED,
        bias=model_type == "gpt_oss",
    )


def _router_bias(keys: Keys, model_type: str) -> bool:
    # DeepSeek-V3's selection bias is a vector of the experts' number, hence counted like a bias.
    return (
        model_type in {"glm4_moe", "gpt_oss", "nemotron_h"}
        or keys.text("topk_method") == "noaux_tc"
        or keys.flag("use_routing_bias")
    )


def _is_sparse(keys: Keys, index: int) -> bool:
    if index in keys.sizes("mlp_only_layers"):
        return False
    frequency = keys.sizes("moe_layer_freq")
    if frequency:
        return index < len(frequency) and frequency[index] != 0
    if index < (keys.optional_size("first_k_dense_replace", "first_k_dense_layers") or 0):
        return False
    if keys.has("expert_layer_period"):
        return index % keys.size("expert_layer_period") == (keys.optional_size("expert_layer_offset") or 0)
    step = keys.optional_size("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq") or 1
    offset = index + 1 if keys.has("decoder_sparse_step", "interleave_moe_layer_step") else index
    return offset % step == 0
