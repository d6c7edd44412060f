"""Layers with a state instead of a cache: which they are in a config, and of what shape.

State-space hybrids name their recurrent layers by a list of types, by indices, or by a period and an offset.
"""

from shardwright_planner.errors import PlanInputError
from shardwright_planner.keys import Keys
from shardwright_planner.model import LinearAttention, Mamba

STATE_DTYPE_BYTES = {"float32": 4}
# Families whose cache the arithmetic here does not hold for: a number would look right and be wrong.
UNREADABLE = {
    "deepseek_v4": "its compressed states are not published per token",
    "falcon_h1": "it runs attention and a state space side by side in every layer",
    "kimi_linear": "its delta attention keeps a state that is not read yet",
    "kimi_k3": "its delta attention keeps a state that is not read yet",
    "lfm2": "its short convolutions keep a state that is not read yet",
    "minimax_text_01": "its lightning attention keeps a state that is not read yet",
    "nemotron-nas": "its layers differ in width and some have no attention",
    "plamo2": "its layers are not read yet",
    "rwkv": "it is recurrent throughout",
    "zamba2": "its attention blocks are shared between layers",
}


def check_readable(keys: Keys, model_type: str) -> None:
    """Refuse by name what generic fields would describe wrongly.

    Raises:
        PlanInputError: naming the family and why.
    """
    why = next((why for family, why in UNREADABLE.items() if model_type.startswith(family)), None)
    if why is None and keys.values.get("block_configs"):
        why = UNREADABLE["nemotron-nas"]
    if why is None and keys.values.get("compress_ratios"):
        why = UNREADABLE["deepseek_v4"]
    if why is not None:
        raise PlanInputError(
            field=f"{keys.path}.model_type",
            value=model_type,
            limit=f"the planner cannot size this family: {why}",
            remedy="use another model, or run it outside the planner",
        )


def recurrent_layers(keys: Keys, count: int) -> frozenset[int]:
    """Which layers keep a state instead of a cache."""
    types = keys.names("layer_types") or keys.names("layers_block_type")
    if len(types) == count:
        return frozenset(i for i, kind in enumerate(types) if kind in {"linear_attention", "mamba"})
    if keys.has("attn_layer_indices"):
        attending = set(keys.sizes("attn_layer_indices"))
        return frozenset(i for i in range(count) if i not in attending)
    if keys.has("attn_layer_period"):
        period = keys.size("attn_layer_period")
        offset = keys.optional_size("attn_layer_offset") or 0
        return frozenset(i for i in range(count) if i % period != offset)
    if keys.has("linear_num_key_heads"):
        interval = keys.optional_size("full_attention_interval") or 4
        return frozenset(i for i in range(count) if (i + 1) % interval)
    return frozenset()


def recurrent_mixer(keys: Keys) -> Mamba | LinearAttention:
    """The mixer of those layers.

    Raises:
        PlanInputError: if a size is missing.
    """
    if keys.has("linear_num_key_heads"):
        return _linear_attention(keys)
    return first_mamba(keys) if keys.has("mamba_dt_rank") else second_mamba(keys)


def second_mamba(keys: Keys) -> Mamba:
    """A Mamba-2 mixer (Nemotron-H, Granite 4, Bamba)."""
    return Mamba(
        heads=keys.size("mamba_num_heads", "mamba_n_heads"),
        head_dim=keys.size("mamba_head_dim", "mamba_d_head"),
        groups=keys.size("n_groups", "mamba_n_groups"),
        state_size=keys.size("ssm_state_size", "mamba_d_state"),
        conv_kernel=keys.size("conv_kernel", "mamba_d_conv"),
        state_item_bytes=_state_item_bytes(keys),
    )


def first_mamba(keys: Keys) -> Mamba:
    """A Mamba-1 mixer (Jamba): every channel is a head of its own, without groups."""
    inner = keys.size("hidden_size") * (keys.optional_size("mamba_expand") or 2)
    return Mamba(
        heads=inner,
        head_dim=1,
        groups=0,
        state_size=keys.size("mamba_d_state"),
        conv_kernel=keys.size("mamba_d_conv"),
        step_rank=keys.size("mamba_dt_rank"),
        state_item_bytes=_state_item_bytes(keys),
    )


def _linear_attention(keys: Keys) -> LinearAttention:
    return LinearAttention(
        key_heads=keys.size("linear_num_key_heads"),
        value_heads=keys.size("linear_num_value_heads"),
        key_dim=keys.size("linear_key_head_dim"),
        value_dim=keys.size("linear_value_head_dim"),
        conv_kernel=keys.size("linear_conv_kernel_dim"),
        state_item_bytes=_state_item_bytes(keys),
    )


def _state_item_bytes(keys: Keys) -> int:
    stated = keys.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
    return STATE_DTYPE_BYTES.get(stated, 2)
