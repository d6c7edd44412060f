"""Encoders beside the language model: how large they are and what profiling them takes.

A multimodal config says little about its encoder, so that sizes here are estimates from width and depth;
checkpoints with an index of real tensors do not need them.
"""

from shardwright_planner.keys import Keys
from shardwright_planner.model import Tower

GATED = frozenset({"pixtral", "qwen2_5_vl", "mllama_vision"})  # three matrices per MLP instead of two
# The Qwen encoders take images and videos of any size, and vLLM profiles them with the largest: 32768 tokens
# of four patches. Others see what a step of tokens can hold.
LARGEST_INPUT = 131072
ANY_SIZE = "qwen"


def vision_tower(top: Keys) -> Tower | None:
    """The encoder in a config's vision section; None for a plain language model."""
    vision = top.section("vision_config")
    if vision is None:
        return None
    depth = vision.optional_size("depth", "vt_num_hidden_layers", "num_hidden_layers", "layers") or 0
    width = vision.optional_size("embed_dim", "vt_hidden_size", "hidden_size", "width") or 0
    if not depth or not width:
        return None
    inward = vision.optional_size("intermediate_size", "vt_intermediate_size") or 4 * width
    family = vision.text("model_type") or top.text("model_type")
    mlp = (3 if family.startswith(tuple(GATED)) else 2) * width * inward
    mixing = 4 * width * width
    patch = vision.optional_size("patch_size", "spatial_patch_size") or 14
    frames = vision.optional_size("temporal_patch_size") or 1
    positions = vision.optional_size("num_position_embeddings") or 0
    ends = 3 * patch * patch * frames * width + positions * width
    sized = ANY_SIZE in family
    return Tower(
        parameters=depth * (mixing + mlp) + ends + _projector(top, vision, width),
        split_parameters=depth * mlp,
        patch_elements=2 * inward + 3 * width,
        patches=LARGEST_INPUT if sized else 0,
    )


def _projector(top: Keys, vision: Keys, width: int) -> int:
    # Two matrices from the merged patches to the language model, and one pair per tapped layer.
    text = top.section("text_config", "llm_config", "language_config") or top
    hidden = vision.optional_size("out_hidden_size", "text_hidden_size") or (
        text.optional_size("hidden_size") or width
    )
    side = vision.optional_size("spatial_merge_size") or top.optional_size("spatial_merge_size") or 1
    if vision.sizes("merge_kernel_size"):
        side = vision.sizes("merge_kernel_size")[0]
    merged = side * side * width
    taps = 1 + len(vision.sizes("deepstack_visual_indexes"))
    if side == 1:
        return width * hidden + hidden * hidden
    return taps * (merged * merged + merged * hidden)
