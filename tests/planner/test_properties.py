"""What must hold for any request: more hardware never hurts, pins change nothing they agree with, no NaN."""

import math
from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from shardwright_planner import (
    GPUS,
    EngineOptions,
    Pins,
    Plan,
    PlanInputError,
    PlanRequest,
    Pool,
    ServiceLevel,
    Workload,
    find_gpu,
    find_model,
    plan,
)
from shardwright_planner.engine import find_engine
from shardwright_planner.layout import Layout
from shardwright_planner.legality import Legality
from shardwright_planner.planner import search
from shardwright_planner.setting import settings as complete
from shardwright_planner.workbench import Workbench

MODELS = [
    "meta-llama/Llama-3.2-1B",
    "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B",
    "meta-llama/Llama-3.1-405B-Instruct",
    "meta-llama/Llama-3.1-405B-Instruct-FP8",
    "Qwen/Qwen2.5-7B",
    "Qwen/Qwen2.5-72B-Instruct-AWQ",
    "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen3-235B-A22B-FP8",
    "Qwen/Qwen3.5-35B-A3B",
    "deepseek-ai/DeepSeek-V3",
    "google/gemma-3-27b-it",
    "mistralai/Mixtral-8x7B-v0.1",
    "nvidia/Nemotron-H-56B-Base-8K",
    "openai/gpt-oss-120b",
]
quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def model(name):
    found = find_model(name)
    assert found is not None
    return found


@st.composite
def requests(draw):
    facts = model(draw(st.sampled_from(MODELS)))
    pool = Pool(
        gpu=draw(st.sampled_from(GPUS)),
        gpus_per_node=draw(st.sampled_from([1, 2, 3, 4, 6, 8])),
        nodes=draw(st.integers(1, 4)),
        nic_bytes_per_s=draw(st.sampled_from([None, 12.5e9, 400e9])),
    )
    inputs, outputs = draw(st.integers(1, 4096)), draw(st.integers(1, 2048))
    level = ServiceLevel(
        concurrency=draw(st.integers(1, 300)),
        time_per_output_token_s=draw(st.sampled_from([None, 0.005, 0.03, 0.2])),
        time_to_first_token_s=draw(st.sampled_from([None, 0.1, 2.0, 60.0])),
    )
    engine = EngineOptions(kv_cache_dtype=draw(st.sampled_from([None, "fp8"])))
    return PlanRequest(
        model=facts,
        pools=(pool,),
        workload=Workload(input_tokens=inputs, output_tokens=outputs),
        service_level=level,
        engine=engine,
    )


def answered(request: PlanRequest) -> Plan | None:
    try:
        return plan(request)
    except PlanInputError:
        return None


def numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [n for inner in value.values() for n in numbers(inner)]
    if isinstance(value, list):
        return [n for inner in value for n in numbers(inner)]
    return [value] if isinstance(value, float) else []


@quick
@given(requests())
def test_a_plan_is_the_same_each_time_finite_and_consistent(request):
    found = answered(request)
    assume(found is not None)
    assert found == plan(request)
    assert all(math.isfinite(number) for number in numbers(found.to_wire()))
    world = found.tensor_parallel * found.pipeline_parallel * found.data_parallel
    assert found.gpus_per_replica == world == found.nodes * found.gpus_per_node
    assert found.gpus_per_node <= request.pools[0].gpus_per_node
    assert found.nodes <= request.pools[0].nodes
    assert sum(stage.layers for stage in found.stages) == request.model.layer_count
    if found.feasible:
        assert found.slo_concurrency >= request.service_level.concurrency
        assert found.max_model_length >= request.workload.input_tokens + request.workload.output_tokens
        assert all(stage.missing_bytes == 0 for stage in found.stages)
    else:
        assert any(stage.missing_bytes for stage in found.stages)


@quick
@given(requests())
def test_more_nodes_never_fit_less(request):
    found = answered(request)
    assume(found is not None and found.feasible)
    pool = request.pools[0]
    larger = plan(replace(request, pools=(replace(pool, nodes=pool.nodes + 1),)))
    assert larger.feasible
    if found.slo_predicted is not False:
        assert (larger.slo_predicted, larger.gpus_per_replica) == (
            found.slo_predicted,
            found.gpus_per_replica,
        )


@quick
@given(requests())
def test_twice_the_gpus_in_a_node_never_fit_less(request):
    found = answered(request)
    assume(found is not None and found.feasible)
    pool = request.pools[0]
    assert plan(replace(request, pools=(replace(pool, gpus_per_node=2 * pool.gpus_per_node),))).feasible


@quick
@given(requests())
def test_a_pin_that_agrees_changes_nothing(request):
    found = answered(request)
    assume(found is not None and found.feasible)
    pinned = plan(
        replace(
            request,
            pins=Pins(
                tensor=found.tensor_parallel,
                pipeline=found.pipeline_parallel,
                data=found.data_parallel,
                expert=found.expert_parallel if request.model.is_moe else None,
                pipeline_partition=found.pipeline_partition,
            ),
        )
    )
    same = (
        "gpus_per_replica",
        "nodes",
        "stages",
        "predicted",
        "kv_cache_tokens",
        "slo_predicted",
        "communication",
    )
    assert {name: getattr(pinned, name) for name in same} == {name: getattr(found, name) for name in same}


@quick
@given(requests())
def test_nothing_is_proposed_that_the_engine_would_refuse(request):
    try:
        found = search(request)
    except PlanInputError:
        return
    rules = Legality(request.model, find_engine(request.engine.version))
    for candidate in found:
        illegal = rules.violation(candidate.layout)
        assert (candidate.fit is None) == (illegal is not None)
        assert candidate.violation == illegal


@quick
@given(
    st.sampled_from(MODELS),
    st.lists(st.floats(0.5, 1.0), min_size=2, max_size=2),
    st.lists(st.integers(64, 8192), min_size=2, max_size=2),
)
def test_capacity_grows_with_utilization_and_falls_with_context(name, shares, lengths):
    facts = model(name)

    def fit(share):
        request = PlanRequest(
            model=facts,
            pools=(Pool(gpu=find_gpu("B200"), gpus_per_node=8, nodes=1),),
            workload=Workload(input_tokens=32, output_tokens=32),
            engine=EngineOptions(gpu_memory_utilization=share),
        )
        layout = Layout(tensor=2, gpus_per_node=2, partition=(facts.layer_count,))
        return Workbench(complete(request)[0]).fit(layout)

    low, high = fit(min(shares)), fit(max(shares))
    assert low.blocks <= high.blocks
    assert low.longest_request() <= high.longest_request()
    assert high.concurrency(max(lengths)) <= high.concurrency(min(lengths))


@quick
@given(st.integers(10**11, 10**13))
def test_trillions_of_parameters_stay_exact(parameters):
    facts = model("deepseek-ai/DeepSeek-V3")
    width = parameters // (58 * 256 * 3 * 7168) // 128 * 128 or 128
    kinds = tuple(
        replace(kind, feed_forward=replace(kind.feed_forward, intermediate=width))
        if kind.feed_forward is facts.experts
        else kind
        for kind in facts.kinds
    )
    large = replace(facts, kinds=kinds)
    pool = Pool(gpu=find_gpu("B200"), gpus_per_node=8, nodes=8)
    found = plan(PlanRequest(model=large, pools=(pool,), service_level=ServiceLevel(concurrency=1)))
    assert found.weights_bytes > 0.9 * 58 * 256 * 3 * 7168 * width
    assert all(math.isfinite(number) for number in numbers(found.to_wire()))
