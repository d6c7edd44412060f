"""What changes when the load or the data types change: each change is planned anew, not extrapolated.

A plan answers one question; whoever sizes a cluster wants to know how near its edges are. The answers are
computed on demand and stored nowhere: they follow from the request.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shardwright_planner.errors import PlanInputError
from shardwright_planner.plan import Plan, Rule
from shardwright_planner.planner import plan
from shardwright_planner.request import PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One change of the question. ``plan`` is None where it cannot be asked, and ``refusal`` says why."""

    change: str
    detail: str
    plan: Plan | None = None
    refusal: str = ""

    @property
    def fits(self) -> bool:
        """Whether any layout holds the changed load."""
        return self.plan is not None and self.plan.rule != Rule.NOTHING_FITS.value


def sensitivity(request: PlanRequest) -> tuple[Variant, ...]:
    """Twice the concurrency, twice the context, FP8 weights and an FP8 cache, in this order."""
    return tuple(_variants(request))


def _variants(request: PlanRequest) -> Iterator[Variant]:
    level = request.service_level
    busier = replace(level, concurrency=2 * level.concurrency)
    yield _planned(
        "2x concurrency", f"{busier.concurrency:,} requests at once", replace(request, service_level=busier)
    )
    load = request.workload
    longer = replace(
        load,
        input_tokens=2 * load.input_tokens,
        output_tokens=2 * load.output_tokens,
        max_model_length=_doubled(request),
    )
    context = longer.input_tokens + longer.output_tokens
    yield _planned("2x context", f"requests of {context:,} tokens", replace(request, workload=longer))
    yield _weights(request)
    yield _cache(request)


def _doubled(request: PlanRequest) -> int | None:
    longest, load = request.workload.max_model_length, request.workload
    if longest is None:
        return None
    # The model's own limit stops a generous maximum, but never the typical request: that is refused by name.
    needed = 2 * (load.input_tokens + load.output_tokens)
    return max(needed, min(2 * longest, request.model.max_position))


def _weights(request: PlanRequest) -> Variant:
    change, detail = "FP8 weights", "quantized while loading"
    stored, asked = request.model.quantization, request.engine.quantization
    if stored is not None:
        text = f"the checkpoint is stored as {stored.method} already"
        return Variant(change=change, detail=detail, refusal=text)
    if asked not in {None, "auto", "none"}:
        return Variant(change=change, detail=detail, refusal=f"{asked} is asked for already")
    return _planned(change, detail, replace(request, engine=replace(request.engine, quantization="fp8")))


def _cache(request: PlanRequest) -> Variant:
    change, detail = "FP8 KV cache", "--kv-cache-dtype fp8"
    asked = request.engine.kv_cache_dtype
    stored = request.model.quantization.kv_cache_dtype if request.model.quantization else None
    now = stored if asked in {None, "auto"} else asked
    if now is not None and now.startswith("fp8"):
        return Variant(change=change, detail=detail, refusal=f"the cache is {now} already")
    return _planned(change, detail, replace(request, engine=replace(request.engine, kv_cache_dtype="fp8")))


def _planned(change: str, detail: str, request: PlanRequest) -> Variant:
    try:
        return Variant(change=change, detail=detail, plan=plan(request))
    except PlanInputError as error:
        return Variant(change=change, detail=detail, refusal=error.limit)
