"""From a config.json to the facts the planner needs.

Unknown keys are ignored: a config carries dozens that decide nothing about size. What cannot be read is
refused by the key's name, and families that the arithmetic was not checked on are marked as low confidence.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from shardwright_planner.errors import PlanInputError
from shardwright_planner.keys import MAX_SIZE, Keys
from shardwright_planner.layers import layer_kinds
from shardwright_planner.model import Experts, LayerKind, ModelFacts, Quantization
from shardwright_planner.quantization import SkipList, parse_quantization, skipped_modules
from shardwright_planner.scope import check_scope
from shardwright_planner.tensors import Part, layer_matrices
from shardwright_planner.towers import vision_tower
from shardwright_planner.weights import parameter_count

# transformers' own defaults where the key is absent: these families share the embedding with the head.
TIED_BY_DEFAULT = ("gemma", "cohere", "gpt2", "opt", "bloom", "falcon", "gpt_bigcode")
MOST_PARAMETERS = 10**14
CHECKED_FAMILIES = (
    *("llama", "mistral", "mixtral", "qwen2", "qwen3", "deepseek_v2", "deepseek_v3", "gpt_oss"),
    *("gemma", "granite", "phi", "kimi_k2", "kimi_vl", "glm_moe_dsa", "llava_next"),
)
DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "half": "float16", "float32": "bfloat16"}


def model_from_config(config: Mapping[str, object], *, name: str) -> ModelFacts:
    """The facts in a config.json's own keys.

    Args:
        config: the parsed file; keys of wrappers (``text_config``) are found one level down.
        name: what to call the model in plans and messages.

    Raises:
        PlanInputError: if a size is missing or makes no sense, or the quantization is unknown.
    """
    top = Keys(config)
    inner = top.section("text_config", "llm_config", "language_config")
    keys = Keys({**config, **inner.values}, inner.path) if inner else top
    model_type = (keys.text("model_type") or top.text("model_type")).lower()
    architectures = top.names("architectures") or keys.names("architectures")
    check_scope(top, architectures, model_type)
    layers = layer_kinds(keys, model_type)
    hidden = keys.size("hidden_size", "n_embd", "d_model")
    quantization, layers = _quantized(top, inner, layers, hidden)
    kinds = tuple(dict.fromkeys(layers))
    index = {kind: position for position, kind in enumerate(kinds)}
    facts = ModelFacts(
        name=name,
        architecture=architectures[0] if architectures else "",
        hidden_size=hidden,
        kinds=kinds,
        layers=tuple(index[kind] for kind in layers),
        vocab_size=keys.size("vocab_size", "padded_vocab_size"),
        tied_embeddings=_tied(keys, top, model_type),
        max_position=_max_position(keys),
        dtype=_dtype(keys, top),
        quantization=quantization,
        tower=vision_tower(top),
        extra_parameters=_extra(keys, layers, hidden),
        confidence="high" if model_type.startswith(CHECKED_FAMILIES) else "low",
        source_digest=_digest(config),
    )
    return _check_total(facts, keys.path)


def with_quantization(config: Mapping[str, object], beside: Mapping[str, object] | None) -> dict[str, object]:
    """The config with the section of the ``hf_quant_config.json`` beside it, unless it has one of its own.

    ModelOpt writes what it did into that file, where older versions left config.json as it was.
    """
    section = (beside or {}).get("quantization")
    if not isinstance(section, Mapping) or config.get("quantization_config"):
        return dict(config)
    return {**config, "quantization_config": {"quant_method": "modelopt", **section}}


def _check_total(facts: ModelFacts, path: str) -> ModelFacts:
    total = parameter_count(facts) + (facts.tower.parameters if facts.tower else 0)
    if total > MOST_PARAMETERS:
        raise PlanInputError(
            field=path,
            value=f"a model of {total:.3g} parameters",
            limit=f"the planner stops at {MOST_PARAMETERS:.0e}",
            remedy="check the sizes against the model's own config.json",
        )
    return facts


def _quantized(
    top: Keys, inner: Keys | None, layers: list[LayerKind], hidden: int
) -> tuple[Quantization | None, list[LayerKind]]:
    section = top.section("quantization_config", "compression_config")
    if section is None and inner is not None:
        section = inner.section("quantization_config")
    if section is None or not section.values:
        return None, layers
    skips = SkipList(skipped_modules(section.values))
    names = {kind: _module_names(kind, hidden) for kind in dict.fromkeys(layers)}
    marked = []
    for position, kind in enumerate(layers):
        left = frozenset(module for module in names[kind] if skips.skips(position, module))
        marked.append(replace(kind, unquantized=left))
    return parse_quantization(section.values), marked


def _module_names(kind: LayerKind, hidden: int) -> tuple[str, ...]:
    return tuple(m.name for m in layer_matrices(kind, hidden) if m.part not in {Part.VECTOR, Part.ROUTER})


def _tied(keys: Keys, top: Keys, model_type: str) -> bool:
    default = model_type.startswith(TIED_BY_DEFAULT)
    source = keys if "tie_word_embeddings" in keys.values else top
    return source.flag("tie_word_embeddings", default=default)


def _max_position(keys: Keys) -> int:
    positions = keys.optional_size("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    scaling = keys.section("rope_scaling", "rope_parameters")
    length = positions or 2048
    if scaling is not None:
        factor = scaling.values.get("factor")
        kind = scaling.text("rope_type", "type")
        # As vLLM derives it (config/model.py): llama3 and longrope state the extended length themselves.
        if isinstance(factor, int | float) and kind in {"yarn", "linear", "dynamic"}:
            original = scaling.optional_size("original_max_position_embeddings")
            length = _stretched(original or length, factor, scaling.path)
    return length


def _stretched(length: int, factor: float, path: str) -> int:
    # JSON has 1e308, and Python's own readers of it also take NaN.
    stretched = length * factor if 0 < factor < MAX_SIZE else 0
    if not 1 <= stretched <= MAX_SIZE:
        raise PlanInputError(
            field=f"{path}.factor",
            value=factor,
            limit=f"the length that it makes of {length} positions must be from 1 to {MAX_SIZE}",
            remedy="check the config against the model's own config.json",
        )
    return int(stretched)


def _dtype(keys: Keys, top: Keys) -> str:
    stated = keys.text("dtype", "torch_dtype") or top.text("dtype", "torch_dtype") or "bfloat16"
    return DTYPES.get(stated, "bfloat16")


def _extra(keys: Keys, layers: list[LayerKind], hidden: int) -> int:
    # A multi-token-prediction layer: one decoder layer, a projection of two hidden states, three norms.
    count = keys.optional_size("num_nextn_predict_layers", "mtp_num_hidden_layers") or 0
    if not count:
        return 0
    kind = next((k for k in reversed(layers) if isinstance(k.feed_forward, Experts)), layers[-1])
    return count * (
        sum(m.parameters for m in layer_matrices(kind, hidden)) + 2 * hidden * hidden + 3 * hidden
    )


def _digest(config: Mapping[str, object]) -> str:
    text = json.dumps(config, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
