"""Every rule about sizes, each with the sentence that it refuses with."""

from dataclasses import replace

import pytest

from shardwright_planner import (
    EngineOptions,
    Executor,
    PlanInputError,
    PlanRequest,
    Pool,
    find_gpu,
    find_model,
    model_from_config,
    plan,
)
from shardwright_planner.engine import find_engine
from shardwright_planner.layout import Layout
from shardwright_planner.legality import Legality

DENSE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 32,
    "num_attention_heads": 48,
    "num_key_value_heads": 12,
    "head_dim": 128,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
}
SPARSE = {
    **DENSE,
    "model_type": "qwen3_moe",
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 1536,
}


def rules(config, version="0.33"):
    facts = config if not isinstance(config, dict) else model_from_config(config, name="example/model")
    return Legality(facts, find_engine(version))


def known(name):
    found = find_model(name)
    assert found is not None
    return found


CASES = [
    pytest.param(DENSE, Layout(tensor=4), None, id="everything divides"),
    pytest.param(DENSE, Layout(tensor=5), "48 attention heads do not divide by TP 5", id="heads"),
    pytest.param(
        {**DENSE, "num_key_value_heads": 4},
        Layout(tensor=6),
        "4 KV heads and TP 6 do not divide one another",
        id="KV heads neither way",
    ),
    pytest.param(
        {**DENSE, "intermediate_size": 12290},
        Layout(tensor=4),
        "mlp.gate_proj has width 12290, which does not divide by TP 4",
        id="width",
    ),
    pytest.param(
        DENSE, Layout(tensor=12), "the padded vocabulary of 32000 does not divide by TP 12", id="vocabulary"
    ),
    pytest.param(
        {**DENSE, "architectures": ["WhisperForConditionalGeneration"]},
        Layout(tensor=1, pipeline=2),
        "WhisperForConditionalGeneration has no pipeline parallelism in vLLM 0.33",
        id="an architecture without stages",
    ),
    pytest.param(DENSE, Layout(tensor=1, pipeline=33), "33 stages for 32 layers", id="too many stages"),
    pytest.param(
        DENSE, Layout(tensor=2, expert=True), "expert parallelism needs a mixture of experts", id="no experts"
    ),
    pytest.param(
        DENSE,
        Layout(tensor=1, data=2),
        "data-parallel ranks of a dense model are whole copies: use replicas",
        id="copies",
    ),
    pytest.param(
        SPARSE,
        Layout(tensor=4, data=2, expert=True),
        "6 experts over 8 ranks leave some empty",
        id="empty ranks",
    ),
    pytest.param(SPARSE, Layout(tensor=4, expert=True), None, id="uneven experts are allowed"),
    pytest.param(
        {**SPARSE, "num_experts": 2, "architectures": ["Qwen3MoeForCausalLM"]},
        Layout(tensor=4),
        "TP 4 exceeds the 2 experts; expert parallelism is off",
        id="fewer experts than ranks",
    ),
    pytest.param(
        {**SPARSE, "num_experts": 2, "architectures": ["MixtralForCausalLM"]},
        Layout(tensor=4),
        None,
        id="fewer experts than ranks, in a family that cuts them further",
    ),
    pytest.param(
        {**DENSE, "architectures": ["GptOssForCausalLM"], "num_key_value_heads": 2},
        Layout(tensor=4),
        "GptOssForCausalLM cannot copy its 2 KV heads to TP 4",
        id="KV heads that are not copied",
    ),
    pytest.param(
        {**SPARSE, "moe_intermediate_size": 1538},
        Layout(tensor=4),
        "expert width 1538 does not divide by 4 ranks",
        id="expert width",
    ),
    pytest.param(
        {**SPARSE, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
        Layout(tensor=4),
        None,
        id="blocks of experts that divide",
    ),
    pytest.param(
        known("Qwen/Qwen3-235B-A22B-FP8"),
        Layout(tensor=8),
        "intermediate_size 1536 over 8 ranks is 192, not a multiple of the FP8 block of 128",
        id="blocks that a split would cut",
    ),
    pytest.param(
        known("Qwen/Qwen3-235B-A22B-FP8"),
        Layout(tensor=8, expert=True),
        None,
        id="whole experts lift the rule",
    ),
    pytest.param(
        {**DENSE, "quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}},
        Layout(tensor=2),
        "vLLM 0.33 has no quantization bitsandbytes",
        id="a quantization that the engine dropped",
    ),
    pytest.param(
        known("nvidia/Nemotron-H-56B-Base-8K"),
        Layout(tensor=3),
        "256 Mamba heads do not divide by TP 3",
        id="Mamba heads",
    ),
    pytest.param(
        known("Qwen/Qwen3.5-35B-A3B"),
        Layout(tensor=3),
        "16 key and 32 value heads do not divide by TP 3",
        id="heads of linear attention",
    ),
    pytest.param(
        known("deepseek-ai/DeepSeek-V3"),
        Layout(tensor=3),
        "128 attention heads do not divide by TP 3",
        id="heads of latent attention",
    ),
    pytest.param(
        # 64 heads and 256 experts at TP 3 with whole experts fail two guards; the heads come first.
        {**SPARSE, "num_attention_heads": 64, "num_key_value_heads": 8, "num_experts": 256},
        Layout(tensor=3, expert=True),
        "64 attention heads do not divide by TP 3",
        id="the head rule is reported first",
    ),
]


@pytest.mark.parametrize(("config", "layout", "want"), CASES)
def test_a_layout_is_legal_or_refused_in_words(config, layout, want):
    assert rules(config).violation(layout) == want


@pytest.mark.parametrize(
    ("executor", "version", "layout", "want"),
    [
        pytest.param(Executor.MULTIPROCESSING, "0.12", Layout(tensor=4, nodes=2), None, id="mp over nodes"),
        pytest.param(
            Executor.MULTIPROCESSING,
            "0.11",
            Layout(tensor=4, pipeline=2, nodes=2),
            "executor mp of vLLM 0.11 stays on one node; over 2 nodes it is ray",
            id="mp before it could",
        ),
        pytest.param(Executor.MULTIPROCESSING, "0.11", Layout(tensor=4), None, id="mp in one node"),
        pytest.param(Executor.RAY, "0.11", Layout(tensor=4, pipeline=2, nodes=2), None, id="Ray"),
        pytest.param(
            Executor.RAY,
            "0.32",
            Layout(tensor=2, data=2, expert=True, nodes=2),
            "executor ray runs no data-parallel ranks over nodes; executor mp does",
            id="Ray with data-parallel ranks",
        ),
        pytest.param(Executor.RAY, "0.32", Layout(tensor=2, data=2, expert=True), None, id="in one node"),
    ],
)
def test_executors_reach_other_nodes_or_are_refused_in_words(executor, version, layout, want):
    facts = known("mistralai/Mixtral-8x7B-v0.1")
    assert Legality(facts, find_engine(version), executor).violation(layout) == want


def test_sparse_models_get_stages_over_nodes_where_ray_starts_the_ranks():
    pool = Pool(gpu=find_gpu("H100"), gpus_per_node=8, nodes=2)
    request = PlanRequest(model=known("deepseek-ai/DeepSeek-V3"), pools=(pool,))
    found = plan(replace(request, engine=EngineOptions(executor=Executor.RAY)))
    assert (found.tensor_parallel, found.pipeline_parallel, found.data_parallel) == (8, 2, 1)
    assert plan(request).data_parallel > 1


@pytest.mark.parametrize(
    ("name", "limit", "want"),
    [
        ("meta-llama/Llama-3.1-405B", 16, (1, 2, 4, 8, 16)),
        ("Qwen/Qwen2-7B", 8, (1, 2, 4)),
        ("Qwen/Qwen2.5-VL-72B-Instruct-AWQ", 8, (1,)),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", 8, (1, 2, 4, 8)),  # its makers padded 29568 to 29696
        ("Qwen/Qwen2.5-0.5B", 8, (1, 2)),
    ],
)
def test_legal_tensor_sizes_are_listed(name, limit, want):
    assert rules(known(name)).legal_tensor_sizes(limit) == want


def test_a_gpu_without_the_needed_capability_is_refused_by_name():
    facts = model_from_config(
        {**DENSE, "quantization_config": {"quant_method": "mxfp4"}}, name="example/model"
    )
    old = replace(find_gpu("A10"), name="V100", compute_capability=(7, 0))
    request = PlanRequest(model=facts, pools=(Pool(gpu=old, gpus_per_node=1, nodes=1),))
    with pytest.raises(PlanInputError, match=r"mxfp4 needs compute capability 8.0, V100 has 7.0"):
        plan(request)
