"""Changed questions are planned anew, and what cannot be asked says why."""

from dataclasses import replace

import pytest

from shardwright_planner import (
    EngineOptions,
    PlanRequest,
    Pool,
    ServiceLevel,
    Workload,
    find_gpu,
    find_model,
    plan,
)
from shardwright_planner.sensitivity import sensitivity

CHANGES = ("2x concurrency", "2x context", "FP8 weights", "FP8 KV cache")


def question(name="meta-llama/Llama-3.1-70B-Instruct", *, nodes=1, gpu="H100", **parts):
    facts = find_model(name)
    assert facts is not None
    pool = Pool(gpu=find_gpu(gpu), gpus_per_node=8, nodes=nodes, name="pool")
    return PlanRequest(model=facts, pools=(pool,), **parts)


def variants(request):
    found = sensitivity(request)
    assert tuple(v.change for v in found) == CHANGES
    return {v.change: v for v in found}


def test_each_variant_is_the_plan_of_the_changed_question():
    asked = question(workload=Workload(max_model_length=8192))
    found = variants(asked)
    level = replace(asked.service_level, concurrency=64)
    load = Workload(input_tokens=4096, output_tokens=512, max_model_length=16384)
    fp8 = replace(asked.engine, quantization="fp8")
    assert {change: v.plan for change, v in found.items()} == {
        "2x concurrency": plan(replace(asked, service_level=level)),
        "2x context": plan(replace(asked, workload=load)),
        "FP8 weights": plan(replace(asked, engine=fp8)),
        "FP8 KV cache": plan(replace(asked, engine=replace(asked.engine, kv_cache_dtype="fp8"))),
    }


def test_lighter_weights_and_cache_never_need_more_gpus():
    asked = question("meta-llama/Llama-3.1-405B-Instruct", nodes=2)
    base, found = plan(asked), variants(asked)
    for change in ("FP8 weights", "FP8 KV cache"):
        assert found[change].plan.gpus_per_replica <= base.gpus_per_replica


def test_a_generous_maximum_stops_at_the_limit_of_the_model():
    asked = question(workload=Workload(max_model_length=100_000))
    assert variants(asked)["2x context"].plan.max_model_length == asked.model.max_position


@pytest.mark.parametrize(
    ("request_", "change", "text"),
    [
        pytest.param(
            question("deepseek-ai/DeepSeek-V3", nodes=2),
            "FP8 weights",
            "the checkpoint is stored as fp8 already",
            id="stored in eight bits",
        ),
        pytest.param(
            question(engine=EngineOptions(quantization="fp8")),
            "FP8 weights",
            "fp8 is asked for already",
            id="asked for",
        ),
        pytest.param(
            question(engine=EngineOptions(kv_cache_dtype="fp8_e4m3")),
            "FP8 KV cache",
            "the cache is fp8_e4m3 already",
            id="cache",
        ),
        pytest.param(
            question(workload=Workload(input_tokens=100_000)),
            "2x context",
            "meta-llama/Llama-3.1-70B-Instruct takes at most 131072 tokens in all",
            id="longer than the model",
        ),
    ],
)
def test_what_cannot_be_asked_says_why(request_, change, text):
    found = variants(request_)[change]
    assert (found.plan, found.fits, found.refusal) == (None, False, text)


def test_a_load_that_no_longer_fits_is_an_answer():
    asked = question(gpu="A10", service_level=ServiceLevel(concurrency=8), nodes=1)
    found = variants(asked)["2x context"]
    assert found.plan is not None
    assert found.fits == (found.plan.rule != "NothingFits")
