"""A Llama small enough to write in a test: its config, and the tensors of its checkpoint."""

import json
from collections.abc import Mapping
from typing import Any

HIDDEN, INNER, VOCABULARY = 512, 1024, 4096
BYTES_OF = {"BF16": 2, "F32": 4, "F16": 2, "F8_E4M3": 1, "I32": 4, "U8": 1}

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]

ENDS: Tensors = {
    "model.embed_tokens.weight": ("BF16", (VOCABULARY, HIDDEN)),
    "lm_head.weight": ("BF16", (VOCABULARY, HIDDEN)),
    "model.norm.weight": ("BF16", (HIDDEN,)),
}
"""What lies before and after the layers."""


def config(layers: int) -> dict[str, Any]:
    """Its config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }


def layer(index: int, dtype: str = "BF16", inner: int = INNER) -> Tensors:
    """Tensors of one layer; another ``inner`` makes its MLP wider than the config says."""
    prefix = f"model.layers.{index}"
    square = {f"{prefix}.self_attn.{n}_proj.weight": (dtype, (HIDDEN, HIDDEN)) for n in "qkvo"}
    mlp = {f"{prefix}.mlp.{n}_proj.weight": (dtype, (HIDDEN, inner)) for n in ("gate", "up", "down")}
    norms = {f"{prefix}.{n}_layernorm.weight": (dtype, (HIDDEN,)) for n in ("input", "post_attention")}
    return {**square, **mlp, **norms}


def safetensors(tensors: Tensors, *, data: bool = False) -> bytes:
    """A file with these tensors: the header alone, or zeros for the data besides."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = BYTES_OF[dtype]
        for side in shape:
            size *= side
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + (bytes(at) if data else b"")
