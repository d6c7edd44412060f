"""A remedy that is named works, and the next step beyond it does not."""

import re
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
from shardwright_planner.binding import binding_text


def request(name, gpu, gpus=1, nodes=1, *, longest=None, concurrency=1, goal=None):
    facts = find_model(name)
    assert facts is not None
    return PlanRequest(
        model=facts,
        pools=(Pool(gpu=find_gpu(gpu), gpus_per_node=gpus, nodes=nodes),),
        workload=Workload(max_model_length=longest),
        service_level=ServiceLevel(concurrency=concurrency, time_per_output_token_s=goal),
    )


def number(found, pattern):
    matches = [re.search(pattern, text) for text in found.remedies]
    values = [int(match.group(1)) for match in matches if match]
    assert len(values) == 1, found.remedies
    return values[0]


def test_a_shorter_length_is_the_longest_that_fits():
    asked = request("meta-llama/Llama-3.1-8B", "L4", longest=131_072)
    found = plan(asked)
    length = number(found, r"Lower maxModelLength to (\d+)")
    assert not found.feasible
    assert plan(replace(asked, workload=Workload(max_model_length=length))).feasible
    assert not plan(replace(asked, workload=Workload(max_model_length=length + 16))).feasible


def test_a_lower_concurrency_is_the_highest_that_fits():
    asked = request("meta-llama/Llama-3.1-8B", "L4", concurrency=64)
    found = plan(asked)
    count = number(found, r"Lower the concurrency to (\d+)")
    assert plan(replace(asked, service_level=ServiceLevel(concurrency=count))).feasible
    assert not plan(replace(asked, service_level=ServiceLevel(concurrency=count + 1))).feasible


def test_fewer_sequences_free_what_the_sampler_holds():
    # 1,024 sequences of 201,088 logits are what a single GPU lacks for 32 requests.
    asked = request("openai/gpt-oss-120b", "H100", concurrency=32)
    count = number(plan(asked), r"Set engine.maxNumSeqs to (\d+), .*: TP1 on 1 GPU fits")
    assert count == 32
    assert plan(replace(asked, engine=EngineOptions(max_num_seqs=count))).feasible
    stated = plan(replace(asked, engine=EngineOptions(max_num_seqs=1024)))
    assert not any("maxNumSeqs" in text for text in stated.remedies)


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(request("meta-llama/Llama-3.1-405B", "H100", 8), id="405B"),
        pytest.param(request("deepseek-ai/DeepSeek-V3", "A100-SXM-40GB", 8), id="experts"),
        pytest.param(request("meta-llama/Llama-3.1-70B", "L4", 2), id="small GPUs"),
    ],
)
def test_more_nodes_are_the_fewest_that_fit(asked):
    found = plan(asked)
    nodes = number(found, r"Allow (\d+) nodes")
    pool = asked.pools[0]
    enough = plan(replace(asked, pools=(replace(pool, nodes=nodes),)))
    assert enough.feasible
    assert not plan(replace(asked, pools=(replace(pool, nodes=nodes - 1),))).feasible
    assert found.missing_gpus == nodes * pool.gpus_per_node - pool.gpus_per_node


def test_a_calmer_load_is_the_busiest_that_meets_the_level():
    asked = request("meta-llama/Llama-3.1-70B", "H100", 8, concurrency=64, goal=0.020)
    found = plan(asked)
    count = number(found, r"Lower the concurrency to (\d+) per replica")
    assert (found.feasible, found.slo_predicted) == (True, False)
    level = asked.service_level
    assert plan(replace(asked, service_level=replace(level, concurrency=count))).slo_predicted
    assert not plan(replace(asked, service_level=replace(level, concurrency=count + 1))).slo_predicted


def test_lighter_weights_are_not_offered_where_the_checkpoint_is_light_already():
    found = plan(request("meta-llama/Llama-3.1-405B-Instruct-FP8", "H100", 4))
    assert not found.feasible
    assert not any("FP8 weights" in text for text in found.remedies)


@pytest.mark.parametrize("name", ["deepseek-ai/DeepSeek-R1", "zai-org/GLM-4.6-FP8", "Qwen/Qwen3-235B-A22B"])
def test_the_layout_that_more_nodes_would_bring_is_the_one_that_is_then_planned(name):
    asked = request(name, "A100-40GB", gpus=8, concurrency=32)
    nodes = number(plan(asked), r"Allow (\d+) nodes: ")
    found = plan(replace(asked, pools=(replace(asked.pools[0], nodes=nodes),)))
    label = f"TP{found.tensor_parallel} x PP{found.pipeline_parallel}"
    if found.data_parallel > 1:
        label = f"TP{found.tensor_parallel} x DP{found.data_parallel}"
    assert f"Allow {nodes} nodes: {label}" in plan(asked).remedies[0]


@pytest.mark.parametrize(
    ("given", "reason", "binding", "remedy"),
    [
        pytest.param(
            EngineOptions(gpu_memory_utilization=1.0),
            "Does not fit on 8 H100-SXM-80GB GPUs (1 x 8). Nearest is TP1 x PP2: 79.2 GiB for the engine "
            "leave each GPU 0.5 GiB too little for what CUDA and NCCL hold beside it on stage 1 of 2",
            "memory of a GPU, for what CUDA and NCCL hold beside the engine",
            "Leave engine.gpuMemoryUtilization out: TP2 on 2 GPUs fits.",
            id="the cache is large enough, and the engine takes all",
        ),
        pytest.param(
            EngineOptions(max_num_batched_tokens=2**24),
            "Does not fit on 8 H100-SXM-80GB GPUs (1 x 8). Nearest is TP8: activations of 940.0 and weights "
            "of 7.6 GiB per GPU leave no cache: each GPU may use 72.9 GiB and lacks 882.2 GiB",
            "memory of a GPU, for the activations",
            "Leave engine.maxNumBatchedTokens out: TP2 on 2 GPUs fits.",
            id="a step is too large",
        ),
    ],
)
def test_what_takes_the_memory_is_named_and_not_the_weights(given, reason, binding, remedy):
    asked = request("Qwen/Qwen3-32B", "H100", 8, concurrency=32)
    found = plan(replace(asked, engine=given))
    assert (found.reason, binding_text(found), found.remedies) == (reason, binding, (remedy,))
    assert plan(asked).feasible
