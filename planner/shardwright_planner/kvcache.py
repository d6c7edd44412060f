"""The KV cache in vLLM's own terms: groups of layers, blocks, and how many of them a request needs.

Following vLLM 0.33 v1/kv_cache_interface.py and v1/core/kv_cache_planning.py: layers of one type are cut into
groups of equal size, every group has one page per layer in a block, and a block's bytes on a worker are those
of the fullest group among the layers that the worker holds.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from shardwright_planner.model import (
    Attention,
    LatentAttention,
    LayerKind,
    LinearAttention,
    Mamba,
    ModelFacts,
)

BLOCK_TOKENS = 16
LATENT_OPAQUE_BYTES = 656  # fp8_ds_mla: 512 latent, 16 scale and 128 rotary bytes per token and layer


class Retention(StrEnum):
    """What a layer keeps of a sequence."""

    FULL = "full"
    WINDOW = "window"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class Spec:
    """What one layer caches on one rank."""

    retention: Retention
    token_bytes: int  # per token; 0 for a state
    window: int = 0
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share one block table; ``block_tokens`` is how many tokens one of its blocks holds."""

    spec: Spec
    layers: tuple[int, ...]  # ascending
    block_tokens: int = BLOCK_TOKENS

    def layers_between(self, start: int, stop: int) -> int:
        """How many of the group's layers a worker with layers ``start`` to ``stop - 1`` holds."""
        return bisect_left(self.layers, stop) - bisect_left(self.layers, start)

    def request_blocks(self, tokens: int, in_flight: int | None) -> int:
        """Blocks of one request of that length in this group."""
        if self.spec.retention is Retention.STATE:
            return 1
        whole = -(-tokens // self.block_tokens)
        if self.spec.retention is Retention.FULL:
            return whole
        if in_flight is None:
            return min(whole, -(-self.spec.window // self.block_tokens) + 1)
        return -(-min(self.spec.window - 1 + in_flight, tokens) // self.block_tokens) + 1


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """All groups of a model for one tensor size, with the block they share.

    ``sizes`` is only there when all layers keep everything but differ in size: one group then holds them all
    and a block is the sum over layers (vLLM's UniformTypeKVCacheSpecs); it gives the bytes per token of all
    layers before each index.
    """

    groups: tuple[Group, ...]
    block_tokens: int
    page_bytes: int  # of one layer; the largest where they differ
    sizes: tuple[int, ...] = ()

    def block_bytes(self, start: int, stop: int) -> int:
        """Bytes of one block on a worker that holds layers ``start`` to ``stop - 1``."""
        if self.sizes:
            return (self.sizes[stop] - self.sizes[start]) * self.block_tokens
        fullest = max((group.layers_between(start, stop) for group in self.groups), default=0)
        return fullest * self.page_bytes

    def request_blocks(self, tokens: int, in_flight: int | None = None) -> int:
        """Blocks of one request of that length.

        With ``in_flight`` (tokens that may be scheduled ahead) windows are counted as the engine admits them;
        without, as they stand in steady decoding.
        """
        return sum(group.request_blocks(tokens, in_flight) for group in self.groups)

    @property
    def is_uniform(self) -> bool:
        """Whether every layer belongs to one group of full attention."""
        return len(self.groups) == 1 and self.groups[0].spec.retention is Retention.FULL


def layer_spec(kind: LayerKind, tensor: int, element_bytes: float, cache_dtype: str) -> Spec | None:
    """What a layer of that kind caches on one rank; None if it caches nothing."""
    match kind.mixer:
        case Attention() as a:
            heads = max(1, a.kv_heads // tensor)
            size = int(heads * (a.head_dim + a.value_dim) * element_bytes)
            if a.window:
                return Spec(Retention.WINDOW, size, window=a.window)
            return Spec(Retention.FULL, size)
        case LatentAttention() as a:
            # One compressed vector, whole on every tensor rank: never divided.
            size = int((a.kv_lora_rank + a.qk_rope_dim) * element_bytes)
            if cache_dtype == "fp8_ds_mla":
                size = LATENT_OPAQUE_BYTES
            return Spec(Retention.FULL, size + index_bytes(a))
        case Mamba() as m:
            groups = m.groups if m.groups % tensor == 0 else tensor
            conv = (m.heads * m.head_dim + 2 * groups * m.state_size) * (m.conv_kernel - 1) // tensor
            state = m.heads * m.head_dim * m.state_size // tensor
            return Spec(Retention.STATE, 0, state_bytes=2 * conv + m.state_item_bytes * state)
        case LinearAttention() as a:
            width = 2 * a.key_heads * a.key_dim + a.value_heads * a.value_dim
            conv = width * (a.conv_kernel - 1) // tensor
            state = a.value_heads * a.value_dim * a.key_dim // tensor
            return Spec(Retention.STATE, 0, state_bytes=2 * conv + a.state_item_bytes * state)
        case None:
            return None


class CacheTable:
    """Cache layouts of one model and cache dtype by tensor size.

    Without ``keeps_windows`` the engine lets layers with a window keep the whole sequence like all others.
    """

    def __init__(
        self, model: ModelFacts, element_bytes: float, cache_dtype: str, *, keeps_windows: bool = True
    ) -> None:
        self.model = model
        self.keeps_windows = keeps_windows
        self.element_bytes = element_bytes
        self.cache_dtype = cache_dtype
        self._layouts: dict[int, CacheLayout] = {}

    def layout(self, tensor: int) -> CacheLayout:
        """Groups, block and page when attention is split over ``tensor`` ranks."""
        if tensor not in self._layouts:
            self._layouts[tensor] = self._made(tensor)
        return self._layouts[tensor]

    def _made(self, tensor: int) -> CacheLayout:
        kinds = [layer_spec(kind, tensor, self.element_bytes, self.cache_dtype) for kind in self.model.kinds]
        if not self.keeps_windows:
            kinds = [
                Spec(Retention.FULL, spec.token_bytes)
                if spec and spec.retention is Retention.WINDOW
                else spec
                for spec in kinds
            ]
        members: dict[Spec, list[int]] = {spec: [] for spec in kinds if spec is not None}
        lists = [None if spec is None else members[spec] for spec in kinds]
        for index, kind in enumerate(self.model.layers):
            target = lists[kind]
            if target is not None:
                target.append(index)
        return _arranged(members, len(self.model.layers))


def index_bytes(latent: LatentAttention) -> int:
    """Bytes per token of a sparse model's indexer: its key in 8 bits and a 32-bit scale per 128 elements."""
    return latent.index_dim + -(-latent.index_dim // 128) * 4


def _arranged(members: dict[Spec, list[int]], layer_count: int) -> CacheLayout:
    token_bytes = max((spec.token_bytes for spec in members), default=0)
    if len(members) > 1 and all(spec.retention is Retention.FULL for spec in members):
        return _summed(members, layer_count, token_bytes)
    state_bytes = max((spec.state_bytes for spec in members), default=0)
    block = _block_tokens(token_bytes, state_bytes)
    page = max(token_bytes * block, state_bytes)
    size = _group_size([len(layers) for layers in members.values()])
    groups = [
        Group(spec, tuple(part), _tokens_per_page(spec, page, block))
        for spec, layers in members.items()
        for part in _strided(layers, size)
    ]
    return CacheLayout(tuple(groups), block, page)


def _summed(members: dict[Spec, list[int]], layer_count: int, largest: int) -> CacheLayout:
    per_layer = [0] * layer_count
    for spec, layers in members.items():
        for layer in layers:
            per_layer[layer] = spec.token_bytes
    everything = tuple(sorted(layer for layers in members.values() for layer in layers))
    group = Group(next(iter(members)), everything)
    return CacheLayout((group,), BLOCK_TOKENS, largest * BLOCK_TOKENS, (0, *accumulate(per_layer)))


def _tokens_per_page(spec: Spec, page: int, block: int) -> int:
    # Pages have one size (unify_kv_cache_spec_page_size): a type with fewer bytes per token gets longer
    # blocks where its page divides the common one, and is padded elsewhere.
    if not spec.token_bytes or page % (spec.token_bytes * block):
        return block
    return page // spec.token_bytes


def _block_tokens(token_bytes: int, state_bytes: int) -> int:
    # The attention block grows until its page holds a recurrent state (_align_hybrid_block_size).
    if not token_bytes or not state_bytes:
        return BLOCK_TOKENS
    tokens = -(-state_bytes // token_bytes)
    return max(BLOCK_TOKENS, -(-tokens // BLOCK_TOKENS) * BLOCK_TOKENS)


def _group_size(counts: Sequence[int]) -> int:
    if not counts:
        return 1
    smallest, largest = min(counts), max(counts)
    return largest if largest < 1.5 * smallest else smallest


def _strided(layers: Sequence[int], size: int) -> list[list[int]]:
    # Every n-th layer, so that each group spreads evenly over pipeline stages.
    count = -(-len(layers) // size)
    return [list(layers[start::count]) for start in range(count)]
