"""What a checkpoint's tensors weigh, by decoder layer, as the headers of its files say.

A config says how a model is built, not how it was stored: which modules a quantized checkpoint leaves in 16
bits, what lies beside the language model, whether a head is there at all. The headers of safetensors files
know, and are a few megabytes where the weights are hundreds of gigabytes.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from shardwright_planner.errors import PlanInputError

_TYPES_OF_BITS = {
    64: ("F64", "I64", "U64", "C64"),
    32: ("F32", "I32", "U32"),
    16: ("F16", "BF16", "I16", "U16"),
    8: ("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "U8", "BOOL"),
    6: ("F6_E2M3", "F6_E3M2"),
    4: ("F4",),
}
BITS = {name: bits for bits, names in _TYPES_OF_BITS.items() for name in names}
"""Bits of an element by the type's name in a safetensors header."""
CAST = frozenset({"F64", "F32", "F16", "BF16"})
"""Types that the engine turns into the model's own while it loads."""

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.([0-9]+)\.")
_EMBEDDING = frozenset({"embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in", "embeddings"})
_HEAD = frozenset({"lm_head", "output", "embed_out"})
_BESIDE = ("vision", "visual", "audio", "multi_modal", "mm_", "image", "vit", "patch_merger", "embed_vision")
_MOST_ELEMENTS = 2**60
_NOWHERE = ("nowhere", 0)
"""Of tensors that count in the sum of all alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor of a header: ``elements`` in the type ``dtype``, and the bytes they take in the file."""

    name: str
    dtype: str
    elements: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk:
    """Tensors taken together: elements that are cast while loading, and bytes that are loaded as they are."""

    elements: int = 0
    fixed_bytes: int = 0

    def loaded_bytes(self, dtype_bytes: float) -> float:
        """Bytes in memory for a model type of that many bytes."""
        return self.elements * dtype_bytes + self.fixed_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBytes:
    """A checkpoint's tensors by their place in the model.

    ``layers`` are the decoder layers without their routed experts, which stand in ``experts``. Where only the
    size of the whole is known, from an index without its files, ``total_bytes`` has it and all else is empty.
    """

    layers: tuple[Bulk, ...] = ()
    experts: tuple[Bulk, ...] = ()
    embedding: Bulk = Bulk()
    head: Bulk = Bulk()
    tower: Bulk = Bulk()
    total_bytes: int = 0

    @property
    def is_quantized(self) -> bool:
        """Whether a good part of it is stored in a form that is loaded as it is."""
        parts = (*self.layers, *self.experts)
        fixed = sum(part.fixed_bytes for part in parts)
        return fixed > 0.05 * (fixed + 2 * sum(part.elements for part in parts))


def tensor_bytes(tensors: Iterable[Tensor], layers: int) -> TensorBytes:
    """The tensors of a model with that many decoder layers, by their place."""
    sums: dict[tuple[str, int], list[int]] = {}
    total = 0
    for tensor in tensors:
        total += tensor.stored_bytes
        entry = sums.setdefault(_place(tensor.name, layers), [0, 0])
        if tensor.dtype in CAST and not _is_scale(tensor.name):
            entry[0] += tensor.elements
        else:
            entry[1] += tensor.stored_bytes
    found = {key: Bulk(elements=cast, fixed_bytes=fixed) for key, (cast, fixed) in sums.items()}
    nothing = Bulk()
    return TensorBytes(
        layers=tuple(found.get(("layer", index), nothing) for index in range(layers)),
        experts=tuple(found.get(("experts", index), nothing) for index in range(layers)),
        embedding=found.get(("embedding", 0), nothing),
        head=found.get(("head", 0), nothing),
        tower=found.get(("tower", 0), nothing),
        total_bytes=total,
    )


def header_tensors(header: Mapping[str, object], source: str) -> tuple[Tensor, ...]:
    """The tensors that the parsed header of a safetensors file lists.

    Raises:
        PlanInputError: for a header that is not one; ``source`` is named in it.
    """
    return tuple(_tensor(name, entry, source) for name, entry in header.items() if name != "__metadata__")


def _tensor(name: str, entry: object, source: str) -> Tensor:
    if isinstance(entry, Mapping):
        dtype, shape = entry.get("dtype"), entry.get("shape")
        if isinstance(dtype, str) and dtype in BITS and isinstance(shape, list | tuple):
            sizes = [size for size in shape if isinstance(size, int) and 0 <= size <= _MOST_ELEMENTS]
            elements = prod(sizes)
            if len(sizes) == len(shape) and elements <= _MOST_ELEMENTS:
                size = -(-elements * BITS[dtype] // 8)
                return Tensor(name=name, dtype=dtype, elements=elements, stored_bytes=size)
    raise PlanInputError(
        field="model",
        value=source,
        limit=f"its entry {name[:80]!r} has no type and shape of a safetensors header",
        remedy="download the file again",
    )


def _place(name: str, layers: int) -> tuple[str, int]:
    parts = name.split(".")
    if any(part.startswith(_BESIDE) for part in parts):
        return "tower", 0
    if any(part == "mtp" or part.startswith("mtp_") for part in parts):
        return _NOWHERE
    found = _LAYER.search(name)
    if found is not None:
        index = int(found.group(1))
        if index >= layers:
            # Multi-token prediction again, as DeepSeek stores it: it is not loaded.
            return _NOWHERE
        return ("experts" if "experts" in parts else "layer"), index
    if _EMBEDDING & set(parts):
        return "embedding", 0
    if parts[0] in _HEAD or "lm_head" in parts:
        return "head", 0
    return _NOWHERE


def _is_scale(name: str) -> bool:
    last = name.rsplit(".", 1)[-1]
    return "scale" in last or "zero" in last
