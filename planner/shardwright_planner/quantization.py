"""Reading a checkpoint's own ``quantization_config``: bytes per parameter, granularity, what it leaves out.

Rates count scales and zero points in (vLLM 0.33 model_executor/layers/quantization): a group of g weights
carries a 16-bit scale and, where zero points are stored, one packed zero.
"""

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from shardwright_planner.errors import PlanInputError
from shardwright_planner.expressions import Expression, UnknownExpressionError, compile_expression
from shardwright_planner.model import Quantization

NVFP4_BYTES = 0.5 + 1 / 16
MXFP4_BYTES = 0.5 + 1 / 32
FIELD = "model.config.quantization_config"
MOST_EXPRESSIONS, MOST_GLOBS = 64, 1024


def parse_quantization(section: Mapping[str, object]) -> Quantization:
    """The scheme that a ``quantization_config`` describes.

    Raises:
        PlanInputError: for a method that the planner does not know.
    """
    method = str(section.get("quant_method") or section.get("quant_algo") or "").lower()
    reader = _READERS.get(method)
    if reader is None:
        raise PlanInputError(
            field=f"{FIELD}.quant_method",
            value=method,
            limit=f"the known methods are {', '.join(sorted(_READERS))}",
            remedy="use a checkpoint with one of these, or the unquantized one",
        )
    return reader(section)


def online_quantization(method: str) -> Quantization:
    """The scheme that vLLM applies itself to a 16-bit checkpoint when told ``--quantization METHOD``.

    Raises:
        PlanInputError: for a method that needs a prepared checkpoint.
    """
    if method != "fp8":
        raise PlanInputError(
            field="model.quantization",
            value=method,
            limit="a 16-bit checkpoint can be quantized while loading to fp8 only",
            remedy="use fp8, or a checkpoint that was prepared for this method",
        )
    return Quantization(method="fp8", bits=8, bytes_per_parameter=1.0, activation_bits=8)


def _fp8(section: Mapping[str, object]) -> Quantization:
    block = _pair(section, "weight_block_size")
    rate = 1.0 if block is None else 1.0 + 4 / (block[0] * block[1])
    return Quantization(method="fp8", bits=8, bytes_per_parameter=rate, block=block, activation_bits=8)


def _fbgemm(_: Mapping[str, object]) -> Quantization:
    return Quantization(method="fbgemm_fp8", bits=8, bytes_per_parameter=1.0, activation_bits=8)


def _grouped(method: str) -> Callable[[Mapping[str, object]], Quantization]:
    def read(section: Mapping[str, object]) -> Quantization:
        bits = _integer(section.get("bits") or section.get("w_bit"), 4)
        group = _integer(section.get("group_size") or section.get("q_group_size"), 128)
        return Quantization(
            method=method,
            bits=bits,
            bytes_per_parameter=_integer_rate(bits, group, zeros=True),
            group_size=group if group > 0 else None,
            quantizes_head=section.get("lm_head") is True,
        )

    return read


def _compressed(section: Mapping[str, object], method: str = "compressed-tensors") -> Quantization:
    groups = [_mapping(group) for group in _mapping(section.get("config_groups")).values()]
    experts = next((group for group in groups if _targets(group, experts=True)), None)
    others = next((group for group in groups if _targets(group, experts=False)), None)
    main = others or experts or (groups[0] if groups else {})
    scheme = _of_group(main, method)
    if experts is not None and others is None:
        scheme = replace(scheme, experts_only=True)
    elif experts is not None and experts is not others:
        scheme = replace(scheme, expert_bytes_per_parameter=_of_group(experts, method).bytes_per_parameter)
    blocks = next((group for group in groups if _targets_blocks(group)), None)
    if blocks is not None and blocks is not main and not scheme.experts_only:
        other = _of_group(blocks, method)
        scheme = replace(
            scheme,
            block_bytes_per_parameter=other.bytes_per_parameter,
            block_activation_bits=other.activation_bits,
        )
    cache = _mapping(section.get("kv_cache_scheme"))
    head = next((group for group in groups if "lm_head" in _names(group)), None)
    return replace(
        scheme,
        quantizes_head=head is not None or (_is_general(main) and not _skips_head(section)),
        head_bytes_per_parameter=None if head is None else _of_group(head, method).bytes_per_parameter,
        kv_cache_dtype="fp8" if cache.get("num_bits") == 8 else None,
    )


def _of_group(group: Mapping[str, object], method: str) -> Quantization:
    weights, activations = _mapping(group.get("weights")), _mapping(group.get("input_activations"))
    bits = _integer(weights.get("num_bits"), 8)
    size = _integer(weights.get("group_size"), 0)
    if weights.get("type") == "float" and bits == 4:
        rate, size = (NVFP4_BYTES, 16) if size in {0, 16} else (MXFP4_BYTES, 32)
    elif weights.get("type") == "float" or size <= 0:
        rate = bits / 8
    else:
        rate = _integer_rate(bits, size, zeros=weights.get("symmetric") is False)
    return Quantization(
        method=method,
        bits=bits,
        bytes_per_parameter=rate,
        group_size=size if size > 0 else None,
        block=_pair(weights, "block_structure"),
        activation_bits=_integer(activations.get("num_bits"), 16),
        # What has no type is an integer, but beside weights that are none.
        integer_activations=bool(activations)
        and activations.get("type", weights.get("type", "int")) == "int",
    )


def _names(group: Mapping[str, object]) -> tuple[str, ...]:
    targets = group.get("targets")
    if isinstance(targets, Sequence) and not isinstance(targets, str):
        return tuple(map(str, targets))
    return ()


def _is_general(group: Mapping[str, object]) -> bool:
    # A group without targets, or for a class of layers, applies to every linear layer.
    return all(name in {"Linear", "FusedMoE"} for name in _names(group))


def _targets(group: Mapping[str, object], *, experts: bool) -> bool:
    # Mixed checkpoints list modules: experts in one format, attention in another. Shared experts are linear
    # layers like any other.
    names = [name for name in _names(group) if "lm_head" not in name]
    if not names or _is_general(group):
        return not experts
    return any((".experts" in name or "experts" in name.split("\\.")) is experts for name in names)


def _targets_blocks(group: Mapping[str, object]) -> bool:
    # Dense feed-forward blocks and shared experts, by their projections.
    names = (name for name in _names(group) if ".experts" not in name)
    return any(".mlp." in name or "shared_expert" in name for name in names)


def _modelopt(section: Mapping[str, object]) -> Quantization:
    algorithm = str(section.get("quant_algo") or "").upper()
    cache = _mapping(section.get("kv_cache_scheme"))
    named = str(section.get("kv_cache_quant_algo") or "").upper() == "FP8"
    named = named or str(section.get("kv_cache_scheme")).upper() == "FP8"
    kv = "fp8" if named or cache.get("num_bits") == 8 else None
    if algorithm == "MIXED_PRECISION":
        if section.get("config_groups"):
            return replace(_compressed(section, "modelopt_mixed"), kv_cache_dtype=kv)
        return Quantization(
            method="modelopt_mixed",
            bits=8,
            bytes_per_parameter=1.0,
            activation_bits=8,
            kv_cache_dtype=kv,
            is_upper_bound=True,
        )
    if "FP4" in algorithm or "fp4" in str(section.get("quant_method")):
        return Quantization(
            method="modelopt_fp4",
            bits=4,
            bytes_per_parameter=NVFP4_BYTES,
            group_size=16,
            activation_bits=4,
            kv_cache_dtype=kv,
        )
    return Quantization(
        method="modelopt", bits=8, bytes_per_parameter=1.0, activation_bits=8, kv_cache_dtype=kv
    )


def _mxfp4(_: Mapping[str, object]) -> Quantization:
    return Quantization(
        method="mxfp4",
        bits=4,
        bytes_per_parameter=MXFP4_BYTES,
        group_size=32,
        experts_only=True,
        pad_multiple=128,
    )


def _bitsandbytes(section: Mapping[str, object]) -> Quantization:
    four = section.get("load_in_4bit") is True
    return Quantization(
        method="bitsandbytes",
        bits=4 if four else 8,
        bytes_per_parameter=0.5 + 4 / 64 if four else 1.0,
    )


_READERS: dict[str, Callable[[Mapping[str, object]], Quantization]] = {
    "auto-round": _grouped("inc"),
    "awq": _grouped("awq"),
    "awq_marlin": _grouped("awq"),
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed,
    "fbgemm_fp8": _fbgemm,
    "fp8": _fp8,
    "gptq": _grouped("gptq"),
    "gptq_marlin": _grouped("gptq"),
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "mxfp4": _mxfp4,
}


_ELSEWHERE = re.compile(r"(^|[._*])(mtp|vision|visual|audio|draft|eagle)")


def skipped_modules(section: Mapping[str, object]) -> tuple[str, ...]:
    """Entries of the ignore list, under whichever of its names the method uses."""
    for key in ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules"):
        entries = section.get(key)
        if isinstance(entries, Sequence) and not isinstance(entries, str):
            return tuple(str(entry) for entry in entries)
    return ()


class SkipList:
    """Which modules of a layer an ignore list leaves in 16 bits.

    Lists name modules in full, by prefix, by wildcard, or by regular expression after ``re:``; the path
    before ``layers.`` differs between wrappers and is dropped, and numbered experts count as all of them.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        # Lists also name layers of encoders and of draft heads, whose numbers are not the decoder's.
        entries = [entry for entry in entries if not _ELSEWHERE.search(entry.partition("layers.")[0])]
        written = dict.fromkeys(entry for entry in entries if entry.startswith("re:"))
        plain = {_tail(entry) for entry in entries if not entry.startswith("re:")}
        self._globs = [entry for entry in plain if "*" in entry]
        if len(written) > MOST_EXPRESSIONS or len(self._globs) > MOST_GLOBS:
            raise PlanInputError(
                field=FIELD,
                value=f"an ignore list with {len(written)} expressions and {len(self._globs)} wildcards",
                limit=f"the planner reads at most {MOST_EXPRESSIONS} and {MOST_GLOBS} of them",
                remedy="name the modules, or use fewer patterns that cover more",
            )
        self._expressions = [_expression(entry) for entry in written]
        self._names = {entry for entry in plain if "*" not in entry}

    def skips(self, layer: int, module: str) -> bool:
        """Whether ``module`` of that layer stays unquantized."""
        path = f"layers.{layer}.{module}"
        parts = path.split(".")
        if any(".".join(parts[start:stop]) in self._names for start, stop in _spans(len(parts))):
            return True
        if any(fnmatch.fnmatchcase(path, g) or fnmatch.fnmatchcase(path, f"{g}.*") for g in self._globs):
            return True
        full = f"model.{path}"
        return any(expression.match(full) for expression in self._expressions)


def _expression(entry: str) -> Expression:
    try:
        return compile_expression(entry.removeprefix("re:"))
    except UnknownExpressionError as error:
        raise PlanInputError(
            field=FIELD,
            value=entry,
            limit=f"an entry of its ignore list is no regular expression that can be read: {error}",
            remedy="check the config against the model's own config.json",
        ) from None


def _spans(length: int) -> list[tuple[int, int]]:
    # From the top: any prefix ("layers.0"). Below the layer number: any run ("self_attn", "mlp.gate").
    prefixes = [(0, stop) for stop in range(2, length + 1)]
    inner = [(start, stop) for start in range(2, length) for stop in range(start + 1, length + 1)]
    return prefixes + inner


def _tail(entry: str) -> str:
    _, found, rest = entry.partition("layers.")
    path = f"layers.{rest}" if found else entry
    return re.sub(r"\.experts\.\d+", ".experts", path).removesuffix(".weight")


def _skips_head(section: Mapping[str, object]) -> bool:
    return any("lm_head" in entry for entry in skipped_modules(section))


def _integer_rate(bits: int, group: int, *, zeros: bool) -> float:
    rate = bits / 8
    if group > 0:
        rate += 2 / group + (bits / 8 / group if zeros else 0)
    return rate


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _pair(section: Mapping[str, object], name: str) -> tuple[int, int] | None:
    value = section.get(name)
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        return None
    rows, columns = (_integer(size, 0) for size in value)
    if rows < 1 or columns < 1:
        raise PlanInputError(
            field=f"{FIELD}.{name}",
            value=list(value),
            limit="a block has two positive whole numbers",
            remedy="check the config against the model's own config.json",
        )
    return rows, columns


def _integer(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
