"""The simple estimator: evenly spread weights, one reserve, cached tokens. A frame to think with, not a plan.

It knows nothing of embeddings on the first stage, of the head on the last, or of what the engine really
holds; its gaps are what the planner's own memory arithmetic closes. It keeps the model's nominal parameter
count, so that its figures are the ones people know.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shardwright_planner.gpu import GIB
from shardwright_planner.kvcache import layer_spec
from shardwright_planner.model import Attention, ModelFacts
from shardwright_planner.weights import parameter_count

SHAPES = ((1, 1), (2, 1), (4, 1), (8, 1), (16, 1), (8, 2), (4, 2))
LONG_REQUEST = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleAssumptions:
    """The estimator's constants."""

    gpu_bytes: float = 80e9
    utilization: float = 0.90
    reserved_bytes: int = 4 * GIB
    bytes_per_parameter: float = 2.0
    cache_bytes: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleRow:
    """One TP x PP. ``free_bytes`` is negative where the weights do not fit."""

    tensor: int
    pipeline: int
    weights_bytes: float
    token_bytes: float
    free_bytes: float
    heads_replicated: bool

    @property
    def fits(self) -> bool:
        """Whether anything is left for a cache."""
        return self.free_bytes > 0

    @property
    def tokens(self) -> int:
        """Tokens that the cache holds."""
        return int(self.free_bytes / self.token_bytes) if self.fits else 0

    @property
    def long_requests(self) -> int:
        """Requests of 32K tokens that fit at once."""
        return self.tokens // LONG_REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleTable:
    """The estimator's rows with what they were computed from."""

    model: str
    parameters: int
    is_nominal: bool
    assumptions: SimpleAssumptions = field(default_factory=SimpleAssumptions)
    rows: tuple[SimpleRow, ...] = ()


def simple_table(
    model: ModelFacts,
    shapes: Sequence[tuple[int, int]] = SHAPES,
    assumptions: SimpleAssumptions | None = None,
) -> SimpleTable:
    """The estimator's table for (TP, PP) shapes."""
    given = assumptions or SimpleAssumptions()
    parameters = model.nominal_parameters or parameter_count(model)
    rows = []
    for tensor, pipeline in shapes:
        weights = parameters * given.bytes_per_parameter / (tensor * pipeline)
        rows.append(
            SimpleRow(
                tensor=tensor,
                pipeline=pipeline,
                weights_bytes=weights,
                token_bytes=cached_token_bytes(model, tensor, given.cache_bytes) / pipeline,
                free_bytes=given.gpu_bytes * given.utilization - given.reserved_bytes - weights,
                heads_replicated=_kv_heads(model) < tensor,
            )
        )
    return SimpleTable(
        model=model.name,
        parameters=parameters,
        is_nominal=model.nominal_parameters is not None,
        assumptions=given,
        rows=tuple(rows),
    )


def cached_token_bytes(
    model: ModelFacts, tensor: int = 1, element_bytes: float = 2.0, cache_dtype: str = "auto"
) -> int:
    """Cache bytes of one token on one rank over all layers; layers with a window count in full."""
    per_kind = [layer_spec(kind, tensor, element_bytes, cache_dtype) for kind in model.kinds]
    return sum(spec.token_bytes if (spec := per_kind[kind]) else 0 for kind in model.layers)


def _kv_heads(model: ModelFacts) -> int:
    heads = [kind.mixer.kv_heads for kind in model.kinds if isinstance(kind.mixer, Attention)]
    return min(heads, default=1)


def render_simple(table: SimpleTable) -> str:
    """The table as text, with every constant it rests on."""
    given = table.assumptions
    count = f"{table.parameters / 1e9:.1f}e9 parameters ({'nominal' if table.is_nominal else 'counted'})"
    constants = (
        f"GPU of {given.gpu_bytes / 1e9:g}e9 bytes, utilization {given.utilization:.2f}, "
        f"{given.reserved_bytes / GIB:g} GiB reserved, weights spread evenly"
    )
    header = (
        f"{'TP x PP':<9}{'weights/GPU':>12}{'KV/token/GPU':>14}{'KV free/GPU':>14}"
        f"{'tokens':>14}{'32K requests':>14}"
    )
    lines = [f"{table.model}: {count}, {given.bytes_per_parameter:g} bytes each", constants, "", header]
    for row in table.rows:
        shape = f"{row.tensor}x{row.pipeline}"
        weights = f"{row.weights_bytes / GIB:.1f} GiB"
        if not row.fits:
            lines.append(f"{shape:<9}{weights:>12}{'-':>14}{'does not fit':>14}")
            continue
        token, free = f"{row.token_bytes / 1024:g} KiB", f"{row.free_bytes / GIB:.1f} GiB"
        note = "  KV heads replicated" if row.heads_replicated else ""
        lines.append(
            f"{shape:<9}{weights:>12}{token:>14}{free:>14}{row.tokens:>14,}{row.long_requests:>14}{note}"
        )
    return "\n".join(lines)
