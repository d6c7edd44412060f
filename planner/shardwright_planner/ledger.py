"""Two ledgers: memory over TP x PP, and what a forward step sends between GPUs.

They answer "what if" without choosing: the same arithmetic as the plan, laid out as tables. Communication is
counted at the bare link rate, so that a reader can check it by hand; the plan's latencies are calibrated.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shardwright_planner.bars import paragraph
from shardwright_planner.evaluation import judged, shortage
from shardwright_planner.gpu import GIB
from shardwright_planner.model import Experts, ModelFacts
from shardwright_planner.planner import benches
from shardwright_planner.request import PlanRequest
from shardwright_planner.simple import cached_token_bytes
from shardwright_planner.work import model_links

MIB = 1024**2
MICROBATCHES = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """One layout on one pool; bytes are those of the fullest stage."""

    label: str
    pool: str
    tensor: int
    pipeline: int
    data: int
    nodes: int
    fits: bool
    weights_bytes: int
    cache_bytes: int
    tokens: int
    concurrency: float  # typical requests at once
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationLedger:
    """What one forward step of ``tokens`` tokens sends, at the bare link rates."""

    tokens: int
    tensor: int
    pipeline: int
    reduces: int
    reduce_bytes: int
    reduce_sent_bytes: int  # per GPU and step, as a ring
    reduce_s: float
    sends: int
    send_bytes: int
    send_s: float
    expert_layers: int
    exchange_token_bytes: int  # per token and expert layer, both ways
    exchange_bytes: int  # of one expert layer, both ways, all tokens
    cached_token_bytes: int  # of one token over all layers, unsplit


def memory_table(request: PlanRequest) -> tuple[MemoryRow, ...]:
    """Every layout that the planner would consider, with its memory.

    Raises:
        PlanInputError: as planning does.
    """
    rows = []
    for bench in benches(request):
        context = bench.setting.context_tokens
        for candidate in judged(bench, bench.setting.pool, request.pins, whole=True):
            layout, fit = candidate.layout, candidate.fit
            rows.append(
                MemoryRow(
                    label=layout.label(),
                    pool=bench.setting.pool.name or bench.setting.pool.gpu.name,
                    tensor=layout.tensor,
                    pipeline=layout.pipeline,
                    data=layout.data,
                    nodes=layout.nodes,
                    fits=candidate.fits,
                    weights_bytes=max((s.weights for s in fit.stages), default=0) if fit else 0,
                    cache_bytes=min((s.cache for s in fit.stages), default=0) if fit else 0,
                    tokens=fit.tokens(context) if fit else 0,
                    concurrency=fit.concurrency(context) if fit else 0.0,
                    note="" if candidate.fits else candidate.violation or shortage(candidate),
                )
            )
    return tuple(rows)


def communication_ledger(
    model: ModelFacts,
    *,
    tokens: int,
    tensor: int = 1,
    pipeline: int = 1,
    link_bytes_per_s: float = 450e9,
    network_bytes_per_s: float = 50e9,
    element_bytes: int = 2,
    cache: tuple[float, str] = (2.0, "auto"),
) -> CommunicationLedger:
    """Counts and bytes of a step of ``tokens`` tokens, and their time at the bare one-way link rates.

    ``cache`` is bytes per element and data type of the KV cache.
    """
    message = tokens * model.hidden_size * element_bytes
    reduces = model_links(model) if tensor > 1 else 0
    sent = reduces * message * 2 * (tensor - 1) // tensor
    sends = pipeline - 1
    sparse = [kind.feed_forward for kind in model.kinds if isinstance(kind.feed_forward, Experts)]
    layers = sum(isinstance(model.kinds[kind].feed_forward, Experts) for kind in model.layers)
    per_token = 2 * sparse[0].per_token * model.hidden_size * element_bytes if sparse else 0
    return CommunicationLedger(
        tokens=tokens,
        tensor=tensor,
        pipeline=pipeline,
        reduces=reduces,
        reduce_bytes=message if reduces else 0,
        reduce_sent_bytes=sent,
        reduce_s=sent / link_bytes_per_s,
        sends=sends,
        send_bytes=2 * message if sends else 0,
        send_s=sends * 2 * message / network_bytes_per_s,
        expert_layers=layers,
        exchange_token_bytes=per_token,
        exchange_bytes=per_token * tokens,
        cached_token_bytes=cached_token_bytes(model, 1, *cache),
    )


def pipeline_bubble(stages: int, microbatches: int) -> float:
    """Idle share of a pipeline: (p-1)/(m+p-1)."""
    return (stages - 1) / (microbatches + stages - 1)


def render_memory(rows: Sequence[MemoryRow], *, width: int = 100) -> str:
    """The memory table as text of at most ``width`` columns; what does not fit says why below its row."""
    first = max((len(row.label) for row in rows), default=7) + 2
    wide = first + 53 <= width
    sizes = (6, 13, 11, 13, 10) if wide else (0, 10, 9, 11, 8)
    names = ("nodes", "weights/GPU", "KV/GPU", "KV tokens", "requests")
    lines = [_row("layout", first, names if wide else ("", "weights", "KV", "KV tokens", "at once"), sizes)]
    for row in rows:
        weights = f"{row.weights_bytes / GIB:.1f} GiB" if row.weights_bytes else "-"
        nodes = str(row.nodes) if wide else ""
        if row.fits:
            cache = f"{row.cache_bytes / GIB:.1f} GiB"
            cells = (nodes, weights, cache, f"{row.tokens:,}", f"{int(row.concurrency):,}")
            lines.append(_row(row.label, first, cells, sizes))
        else:
            lines.extend(_refused(_row(row.label, first, (nodes, weights), sizes), row.note, width))
    return "\n".join(lines)


def _row(label: str, first: int, cells: Sequence[str], sizes: Sequence[int]) -> str:
    aligned = (f"{cell:>{size}}" for cell, size in zip(cells, sizes, strict=False))
    return f"{label:<{first}}{''.join(aligned)}"


def _refused(start: str, note: str, width: int) -> list[str]:
    indent = " " * (len(start) + 2)
    if width - len(indent) >= 40:
        return paragraph(note, width, f"{start}  ", indent)
    return [start, *paragraph(note, width, "    ")]


def render_communication(ledger: CommunicationLedger, *, width: int = 100) -> str:
    """The communication ledger as text of ``width`` columns, with the bubble table of its pipeline."""
    lines = [f"One forward step of {ledger.tokens} tokens, TP{ledger.tensor} x PP{ledger.pipeline}"]
    if ledger.reduces:
        lines.append(
            f"  AllReduce   {ledger.reduces} x {ledger.reduce_bytes / MIB:.2f} MiB; each GPU sends "
            f"{ledger.reduce_sent_bytes / MIB:.0f} MiB, {ledger.reduce_s * 1e3:.2f} ms at the bare link rate"
        )
    if ledger.sends:
        lines.append(
            f"  sends       {ledger.sends} x {ledger.send_bytes / MIB:.2f} MiB (hidden state and residual), "
            f"{ledger.send_s * 1e3:.2f} ms at the bare network rate"
        )
    if ledger.expert_layers:
        lines.append(
            f"  all-to-all  2 per expert layer, {ledger.expert_layers} layers; "
            f"{ledger.exchange_token_bytes:,} bytes per token and layer both ways, "
            f"{ledger.exchange_bytes / MIB:.1f} MiB per layer"
        )
    lines.append(f"  KV cache    {ledger.cached_token_bytes / 1024:g} KiB per token over all layers, unsplit")
    if ledger.pipeline > 1:
        shares = ", ".join(f"{m}: {100 * pipeline_bubble(ledger.pipeline, m):.0f} %" for m in MICROBATCHES)
        lines.append(f"  bubble      idle share by microbatches in flight: {shares}")
    hanging = " " * 14
    return "\n".join(part for line in lines for part in paragraph(line, width, "", hanging))
