"""Putting a chosen candidate into the words and numbers of a plan.

Floats are rounded to six significant digits, so that a plan read back from the API server compares equal to
the one that was written.
"""

from collections.abc import Sequence

from shardwright_planner.caveats import caveats
from shardwright_planner.choice import (
    choose,
    miss_text,
    reason_text,
    rejection,
    rule_of,
    saving_text,
    slo_text,
    split_cause,
)
from shardwright_planner.evaluation import Candidate, shortage
from shardwright_planner.fingerprint import input_hash
from shardwright_planner.latency import Latency
from shardwright_planner.memory import Fit
from shardwright_planner.plan import (
    LARGEST_COUNT,
    LARGEST_NUMBER,
    MAX_ALTERNATIVES,
    MAX_NOTES,
    MAX_STAGES,
    MAX_TEXT,
    Alternative,
    Communication,
    Confidence,
    Goal,
    Plan,
    Predicted,
    Range,
    Rule,
    SplitCause,
    Stage,
    StepTime,
)
from shardwright_planner.request import PlanRequest
from shardwright_planner.version import PLANNER_VERSION
from shardwright_planner.work import model_links


def plan_of(
    request: PlanRequest,
    chosen: Candidate,
    found: Sequence[Candidate],
    remedies: Sequence[str],
    *,
    feasible: bool = True,
) -> Plan:
    """The plan for a candidate that fits."""
    cause = split_cause(found, chosen)
    missed = miss_text(chosen)
    reason = reason_text(chosen, cause) + saving_text(chosen, found)
    if missed and not feasible:
        reason = f"Refused, because policy Require is set and {missed} on {chosen.layout.label()}"
    return _plan(
        request,
        chosen,
        found,
        feasible=feasible,
        rule=rule_of(chosen, request.pins),
        reason=reason,
        cause=cause,
        remedies=remedies,
    )


def infeasible_plan(
    request: PlanRequest,
    closest: Candidate,
    found: Sequence[Candidate],
    remedies: tuple[tuple[str, ...], int],
) -> Plan:
    """The answer "does not fit", with the sizes of the candidate that lacks least."""
    texts, missing = remedies
    pool = closest.setting.pool
    count = pool.nodes * pool.gpus_per_node
    noun = "GPU" if count == 1 else "GPUs"
    reach = f"{count:,} {pool.gpu.name} {noun} ({pool.nodes} x {pool.gpus_per_node})"
    reason = f"Does not fit on {reach}. Nearest is {closest.layout.label()}: {shortage(closest)}"
    return _plan(
        request,
        closest,
        found,
        feasible=False,
        rule=Rule.NOTHING_FITS,
        reason=reason,
        cause=SplitCause.WEIGHTS if closest.fit and not closest.fit.weights_fit else SplitCause.CACHE,
        remedies=texts,
        missing_gpus=missing,
    )


def _plan(
    request: PlanRequest,
    chosen: Candidate,
    found: Sequence[Candidate],
    *,
    feasible: bool,
    rule: Rule,
    reason: str,
    cause: SplitCause,
    remedies: Sequence[str],
    missing_gpus: int = 0,
) -> Plan:
    setting, layout, fit = chosen.setting, chosen.layout, chosen.fit
    assert fit is not None  # noqa: S101  an illegal candidate is never answered with
    longest = min(request.workload.max_model_length or fit.longest_request(), setting.model.max_position)
    quantization = setting.model.quantization
    return Plan(
        feasible=feasible,
        model=cut(setting.model.name),
        tensor_parallel=layout.tensor,
        pipeline_parallel=layout.pipeline,
        data_parallel=layout.data,
        expert_parallel=layout.expert,
        nodes=layout.nodes,
        gpus_per_node=layout.gpus_per_node,
        gpus_per_replica=layout.world,
        cost_per_hour=None if chosen.cost_per_hour is None else _rounded(chosen.cost_per_hour),
        recommended_replicas=_replicas(request, chosen.latency),
        gpu=setting.pool.gpu.name[:128],
        gpu_memory_bytes=setting.pool.gpu.memory_bytes,
        pool=setting.pool.name[:128],
        rule=rule.value,
        reason=cut(reason),
        split_cause=cause.value,
        slo_predicted=_predicted_slo(chosen),
        slo_message=cut(slo_text(chosen, found)),
        goal=_goal(request),
        max_model_length=longest,
        max_num_seqs=setting.max_num_seqs,
        max_num_batched_tokens=setting.max_num_batched_tokens,
        gpu_memory_utilization=_rounded(setting.utilization),
        dtype=setting.dtype,
        kv_cache_dtype=setting.cache_dtype,
        quantization=quantization.method if quantization else None,
        engine_version=setting.engine.version,
        pipeline_partition=None if layout.own_partition else layout.partition,
        weights_bytes=chosen.bench.table.total_bytes(),
        stages=_stages(fit),
        kv_cache_tokens=fit.tokens(max(1, longest)),
        max_concurrency=_rounded(fit.concurrency(max(1, longest))),
        slo_concurrency=_rounded(fit.concurrency(setting.context_tokens)),
        predicted=_predicted(chosen),
        step_time=_step_time(chosen.latency),
        communication=_communication(chosen),
        alternatives=_alternatives(chosen, found),
        warnings=tuple(map(cut, caveats(chosen, request.pins)))[:MAX_NOTES],
        remedies=tuple(map(cut, remedies))[:MAX_NOTES],
        missing_gpus=missing_gpus,
        input_hash=input_hash(request),
        planner_version=PLANNER_VERSION,
    )


def _replicas(request: PlanRequest, latency: Latency | None) -> int:
    rate = request.workload.requests_per_second
    if rate is None or latency is None:
        return 1
    return min(65536, max(1, -(-rate // latency.requests_per_second).__trunc__()))


def _goal(request: PlanRequest) -> Goal:
    load, level = request.workload, request.service_level
    return Goal(
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        concurrency=level.concurrency,
        time_per_output_token_ms=_optional_ms(level.time_per_output_token_s),
        time_to_first_token_ms=_optional_ms(level.time_to_first_token_s),
        policy=level.policy.value,
    )


def _predicted_slo(chosen: Candidate) -> bool | None:
    level = chosen.setting.service_level
    if level.time_per_output_token_s is None and level.time_to_first_token_s is None:
        return None
    return chosen.meets


def _stages(fit: Fit) -> tuple[Stage, ...]:
    return tuple(
        Stage(
            layers=s.layers,
            weights_bytes=s.weights,
            kv_cache_bytes=s.cache,
            activation_bytes=s.activation,
            overhead_bytes=s.overhead,
            margin_bytes=s.margin,
            free_bytes=s.free,
            missing_bytes=min(s.missing, LARGEST_COUNT),
        )
        for s in fit.stages[:MAX_STAGES]
    )


def _predicted(chosen: Candidate) -> Predicted | None:
    latency = chosen.latency
    if latency is None:
        return None
    piped = chosen.layout.pipeline > 1
    return Predicted(
        time_to_first_token_ms=_range(latency.first_range_s),
        time_per_output_token_ms=_range(latency.token_range_s),
        time_to_first_token_confidence=(
            Confidence.LOW if piped or latency.prefill_share > 0.5 else Confidence.MEDIUM
        ),
        time_per_output_token_confidence=Confidence.LOW if piped else Confidence.MEDIUM,
        tokens_per_second=_rounded(latency.tokens_per_second),
        requests_per_second=_rounded(latency.requests_per_second),
    )


def _step_time(latency: Latency | None) -> StepTime | None:
    if latency is None:
        return None
    step = latency.decode
    terms = {
        "weights": step.weights_s,
        "KV cache": step.cache_s,
        "compute": step.compute_s,
        "AllReduce": step.reduce_s,
        "sends": step.send_s,
        "all-to-all": step.exchange_s,
        "launches": step.launch_s,
        "prefill of other requests": latency.interference_s,
    }
    return StepTime(
        weights_ms=_ms(step.weights_s),
        kv_cache_ms=_ms(step.cache_s),
        compute_ms=_ms(step.compute_s),
        all_reduce_ms=_ms(step.reduce_s),
        send_ms=_ms(step.send_s),
        all_to_all_ms=_ms(step.exchange_s),
        launch_ms=_ms(step.launch_s),
        prefill_ms=_ms(latency.interference_s),
        total_ms=_ms(latency.token_s),
        binding=max(terms, key=lambda name: terms[name]),
    )


def _communication(chosen: Candidate) -> Communication:
    """What moves in one decode step of a layout at the stated concurrency."""
    setting, layout = chosen.setting, chosen.layout
    clock, table = chosen.bench.clock(layout), chosen.bench.table
    tokens = max(1, -(-setting.service_level.concurrency // (layout.data * layout.pipeline)))
    message = tokens * setting.model.hidden_size * setting.dtype_bytes
    reduces = model_links(setting.model) if layout.tensor > 1 else 0
    moe = setting.model.experts
    sparse = sum(1 for kind in setting.model.layers if table.costs(layout)[kind].local_experts)
    exchanges = 2 * sparse if moe is not None and layout.data > 1 else 0
    routed = tokens * layout.data * (moe.per_token if moe else 0)
    return Communication(
        all_reduces_per_step=reduces,
        all_reduce_bytes=message if reduces else 0,
        all_reduce_sent_bytes=reduces * message * 2 * (layout.tensor - 1) // layout.tensor,
        all_reduce_ms=_ms(reduces * clock.reduce_s(tokens)),
        sends_per_step=layout.pipeline - 1,
        send_bytes=2 * message if layout.pipeline > 1 else 0,
        send_ms=_ms((layout.pipeline - 1) * clock.send_s(tokens)),
        all_to_alls_per_step=exchanges,
        all_to_all_bytes=routed * setting.model.hidden_size * setting.dtype_bytes if exchanges else 0,
        all_to_all_ms=_ms(exchanges * clock.exchange_s(tokens)),
        pipeline_bubble=_rounded((layout.pipeline - 1) / (2 * layout.pipeline - 1)),
        tensor_link=_tensor_link(chosen),
    )


def _tensor_link(chosen: Candidate) -> str:
    layout, gpu = chosen.layout, chosen.setting.pool.gpu
    if layout.tensor == 1:
        return "none"
    if layout.crosses_nodes:
        return "network"
    return "NVLink" if layout.tensor <= gpu.nvlink_domain else "PCIe"


def _alternatives(chosen: Candidate, found: Sequence[Candidate]) -> tuple[Alternative, ...]:
    # The nearest misses teach most: what fits comes first, then by distance in GPUs from the choice.
    others = [c for c in found if c.layout != chosen.layout or c.setting.pool != chosen.setting.pool]
    others.sort(
        key=lambda c: (
            c.violation is not None,
            abs(c.layout.world - chosen.layout.world),
            c.layout.nodes,
            c.layout.pipeline,
            c.layout.data,
            c.layout.expert,
        )
    )
    nothing = choose(found) is None
    return tuple(
        Alternative(
            tensor_parallel=c.layout.tensor,
            pipeline_parallel=c.layout.pipeline,
            data_parallel=c.layout.data,
            expert_parallel=c.layout.expert,
            nodes=c.layout.nodes,
            pool=c.setting.pool.name[:128],
            feasible=c.fits,
            slo_predicted=c.meets if c.latency is not None else None,
            reason=cut(shortage(c) if nothing else rejection(c, chosen)),
        )
        for c in others[:MAX_ALTERNATIVES]
    )


def cut(text: str) -> str:
    """A text within the bound that the CRD sets."""
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def _rounded(value: float) -> float:
    """Six significant digits, within what the record can say."""
    return float(f"{min(value, LARGEST_NUMBER):.6g}")


def _ms(seconds: float) -> float:
    return _rounded(seconds * 1000.0)


def _optional_ms(seconds: float | None) -> float | None:
    return None if seconds is None else _ms(seconds)


def _range(ends: tuple[float, float]) -> Range:
    return Range(low=_ms(ends[0]), high=_ms(ends[1]))
