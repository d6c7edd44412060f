"""Faults that people reported from running vLLM over nodes, with the answer a planner should have given."""

import pytest

from shardwright_planner import (
    EngineOptions,
    Gpu,
    Pins,
    PlanInputError,
    PlanRequest,
    Pool,
    ServiceLevel,
    Workload,
    find_gpu,
    find_model,
    model_from_config,
    plan,
)
from shardwright_planner.engine import find_engine
from shardwright_planner.gpu import GIB
from shardwright_planner.kvcache import CacheTable
from shardwright_planner.layout import Layout
from shardwright_planner.legality import Legality

V100_32GB = Gpu(
    name="V100-SXM-32GB",
    memory_bytes=int(31.7 * GIB),
    nominal_memory_bytes=32 * 10**9,
    bandwidth_bytes_per_s=0.9e12,
    flops_16bit=125e12,
    flops_8bit=None,
    flops_int8=None,
    flops_4bit=None,
    compute_capability=(7, 0),
    nvlink_bytes_per_s=150e9,
    nvlink_domain=8,
    pcie_bytes_per_s=16e9,
    source="NVIDIA V100 data sheet",
)


def model(name):
    found = find_model(name)
    assert found is not None
    return found


def request(facts, gpu, gpus, nodes=1, *, pins=None, concurrency=1, tokens=(512, 64), longest=None, **engine):
    gpu = gpu if isinstance(gpu, Gpu) else find_gpu(gpu)
    return PlanRequest(
        model=facts,
        pools=(Pool(gpu=gpu, gpus_per_node=gpus, nodes=nodes, nic_bytes_per_s=50e9),),
        workload=Workload(input_tokens=tokens[0], output_tokens=tokens[1], max_model_length=longest),
        service_level=ServiceLevel(concurrency=concurrency),
        pins=pins or Pins(),
        engine=EngineOptions(**engine),
    )


# 52 heads, 60 layers, about 33e9 parameters.
FIFTY_TWO_HEADS = model_from_config(
    {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 6656,
        "intermediate_size": 17920,
        "num_hidden_layers": 60,
        "num_attention_heads": 52,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "torch_dtype": "float16",
    },
    name="example/33b",
)


def test_heads_that_three_gpus_cannot_share_become_three_stages():
    answer = plan(request(FIFTY_TWO_HEADS, V100_32GB, 3))
    assert (answer.feasible, answer.tensor_parallel, answer.pipeline_parallel) == (True, 1, 3)
    assert [stage.layers for stage in answer.stages] == [20, 20, 20]
    assert answer.rule == "PipelineInsteadOfTensor"


@pytest.mark.parametrize(
    ("facts", "gpus", "tensor", "listed"),
    [
        pytest.param(FIFTY_TWO_HEADS, 4, 3, "1, 2, 4", id="52 heads over 3"),
        pytest.param(model("Qwen/Qwen2-7B"), 8, 8, "1, 2, 4", id="28 heads over 8"),
        pytest.param(model("Qwen/Qwen2-7B"), 8, 7, "1, 2, 4", id="28 heads divide by 7, 4 KV heads do not"),
    ],
)
def test_a_pinned_size_that_heads_refuse_is_answered_with_the_legal_ones(facts, gpus, tensor, listed):
    with pytest.raises(PlanInputError, match=rf"legal sizes here are {listed}\)") as caught:
        plan(request(facts, "A100-SXM-80GB", gpus, pins=Pins(tensor=tensor)))
    assert (caught.value.field, caught.value.value) == ("parallelism.tensor", tensor)


def test_a_small_model_stays_on_one_gpu_and_the_rest_are_replicas():
    answer = plan(request(model("Qwen/Qwen2-7B"), "A100-SXM-80GB", 8))
    assert (answer.tensor_parallel, answer.pipeline_parallel, answer.gpus_per_replica) == (1, 1, 1)


def test_tensor_over_two_nodes_asks_each_pod_for_its_own_gpus_only():
    pins = Pins(tensor=16, pipeline=1, cross_node_tensor=True)
    answer = plan(request(model("meta-llama/Llama-3.1-405B"), "H100", 8, 2, pins=pins))
    assert (answer.nodes, answer.gpus_per_node, answer.gpus_per_replica) == (2, 8, 16)
    assert answer.communication.tensor_link == "network"


def test_tensor_over_nodes_is_refused_without_the_opt_in():
    with pytest.raises(PlanInputError, match=r"stays inside a node.*crossNodeTensor"):
        plan(request(model("meta-llama/Llama-3.1-405B"), "H100", 8, 2, pins=Pins(tensor=16)))


def test_tensor_that_fills_no_whole_nodes_is_refused_with_the_numbers():
    pins = Pins(tensor=16, cross_node_tensor=True)
    with pytest.raises(PlanInputError, match=r"whole nodes of 6 and a replica may use 18 GPUs"):
        plan(request(model("meta-llama/Llama-3.1-405B"), "H100", 6, 3, pins=pins))


def test_two_nodes_of_one_gpu_become_two_stages():
    answer = plan(request(model("Qwen/Qwen2.5-14B"), "L4", 1, 2))
    assert (answer.tensor_parallel, answer.pipeline_parallel, answer.nodes) == (1, 2, 2)
    assert answer.gpus_per_node == 1


def test_two_nodes_of_four_gpus_keep_tensor_in_the_node():
    # TP 8 over 2 x 4 hung in NCCL's initialization.
    answer = plan(request(model("meta-llama/Llama-3.1-405B"), "H200", 4, 2))
    assert (answer.tensor_parallel, answer.pipeline_parallel, answer.nodes) == (4, 2, 2)


@pytest.mark.parametrize("tensor", [2, 4])
def test_a_quantization_group_that_a_split_would_cut_is_refused_by_name(tensor):
    facts = model("Qwen/Qwen2.5-VL-72B-Instruct-AWQ")
    with pytest.raises(PlanInputError, match=r"intermediate_size 29568 .* quantization group of 128"):
        plan(request(facts, "A100-SXM-80GB", 4, pins=Pins(tensor=tensor)))


def test_a_quantization_group_that_cannot_be_split_becomes_two_stages():
    answer = plan(request(model("Qwen/Qwen2.5-VL-72B-Instruct-AWQ"), "L40S", 2))
    assert (answer.feasible, answer.tensor_parallel, answer.pipeline_parallel) == (True, 1, 2)


@pytest.mark.parametrize(
    ("tensor", "refused"),
    [
        pytest.param(32, "18432 over 32 ranks is 576", id="576 and 64 are no multiples of 128"),
        pytest.param(16, None, id="1152 and 128 are"),
    ],
)
def test_block_quantized_experts_limit_the_tensor_size(tensor, refused):
    rules = Legality(model("deepseek-ai/DeepSeek-R1"), find_engine("0.33"))
    found = rules.violation(Layout(tensor=tensor))
    assert found is None if refused is None else refused in (found or "")


def test_block_quantized_experts_over_four_nodes_are_refused_at_32_and_planned_as_stages():
    facts = model("deepseek-ai/DeepSeek-R1")
    with pytest.raises(PlanInputError, match=r"18432 over 32 ranks .*legal sizes here are 1, 2, 4, 8, 16\)"):
        plan(request(facts, "H100", 8, 4, pins=Pins(tensor=32, cross_node_tensor=True)))
    answer = plan(request(facts, "H100", 8, 4, pins=Pins(tensor=8, data=1)))
    assert (answer.feasible, answer.tensor_parallel, answer.pipeline_parallel) == (True, 8, 2)


# 36 layers that cache 320 elements per token each.
SMALL_LATENT_CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 128,
    "num_experts_per_tok": 4,
    "n_shared_experts": 1,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "q_lora_rank": 1024,
    "kv_lora_rank": 256,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 131072,
    "max_position_embeddings": 1048576,
}
SMALL_LATENT = model_from_config(SMALL_LATENT_CONFIG, name="example/latent-119b")


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_a_latent_cache_is_not_divided_by_tensor_parallelism(tensor):
    cache = CacheTable(SMALL_LATENT, 2.0, "auto").layout(tensor)
    assert cache.block_bytes(0, 36) == 23_040 * 16


def test_the_latent_cache_that_is_left_holds_what_the_engine_said():
    cache = CacheTable(SMALL_LATENT, 2.0, "auto").layout(2)
    blocks = int(17.39 * GIB) // cache.block_bytes(0, 36)
    assert blocks * 16 == pytest.approx(810_208, rel=0.001)


def test_a_length_left_to_the_planner_is_one_that_the_engine_can_hold():
    facts = model_from_config(
        {**SMALL_LATENT_CONFIG, "quantization_config": {"quant_method": "fp8"}},
        name="example/latent-119b-fp8",
    )
    answer = plan(request(facts, "H100-NVL-94GB", 2, pins=Pins(tensor=2, data=1)))
    needed = answer.max_model_length * 23_040
    assert answer.feasible
    assert answer.max_model_length < 1_048_576
    assert needed <= answer.stages[0].kv_cache_bytes


def test_what_a_large_sparse_model_takes_besides_weights_and_cache_is_no_flat_figure():
    # 2.3 GiB were set aside per GPU where the engine took about 5.5.
    answer = plan(request(SMALL_LATENT, "H200", 2, pins=Pins(tensor=2, data=1)))
    (stage,) = answer.stages
    assert 5.0 < (stage.activation_bytes + stage.overhead_bytes) / GIB < 8.0
    small = plan(request(model("meta-llama/Llama-3.2-1B"), "H200", 2, pins=Pins(tensor=1)))
    assert small.stages[0].activation_bytes + small.stages[0].overhead_bytes < 4.0 * GIB


def sixteen_bit_deepseek():
    config = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "vocab_size": 129280,
        "max_position_embeddings": 163840,
    }
    return model_from_config(config, name="example/DeepSeek-R1-bf16")


def test_the_fullest_stage_decides_and_not_the_mean():
    answer = plan(
        request(
            sixteen_bit_deepseek(),
            "A100-SXM-80GB",
            8,
            3,
            pins=Pins(tensor=8, pipeline=3, data=1),
            longest=4096,
            gpu_memory_utilization=0.95,
        )
    )
    weights = [stage.weights_bytes for stage in answer.stages]
    assert answer.feasible
    assert max(weights) > 1.02 * sum(weights) / 3
    assert sum(stage.layers for stage in answer.stages) == 61
    assert all(stage.missing_bytes == 0 for stage in answer.stages)


def test_too_few_nodes_for_the_fullest_stage_name_what_is_missing():
    answer = plan(
        request(sixteen_bit_deepseek(), "A100-SXM-80GB", 8, 2, longest=4096, gpu_memory_utilization=0.95)
    )
    assert not answer.feasible
    assert max(stage.missing_bytes for stage in answer.stages) > 0
    assert any("Allow 3 nodes" in text for text in answer.remedies)


@pytest.mark.parametrize("name", ["NVIDIA-H100-80GB-HBM3-SHARED", "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb"])
def test_slices_and_shared_devices_are_not_taken_for_whole_gpus(name):
    with pytest.raises(PlanInputError, match="the known GPUs are"):
        find_gpu(name)


def test_sixteen_bit_floats_that_the_gpu_lacks_become_half():
    facts = model("Qwen/Qwen2.5-0.5B")
    assert plan(request(facts, V100_32GB, 1)).dtype == "float16"
    with pytest.raises(PlanInputError, match=r"below 8.0; use half"):
        plan(request(facts, V100_32GB, 1, dtype="bfloat16"))


def test_an_eight_bit_cache_is_refused_where_no_kernel_reads_it_and_is_no_remedy_there():
    with pytest.raises(PlanInputError, match=r"kvCacheDtype is 'fp8', but V100-SXM-32GB has .* below 7.5"):
        plan(request(model("Qwen/Qwen2.5-0.5B"), V100_32GB, 1, kv_cache_dtype="fp8"))
    short = plan(request(model("Qwen/Qwen2.5-14B"), V100_32GB, 1, longest=32768))
    assert not short.feasible
    assert not any("FP8" in text for text in short.remedies)


def test_fit_is_monotone_in_the_context():
    # The engine once held 20k and 35k but not 29k, since a default of the step size changed in between.
    facts = model("Qwen/Qwen2.5-7B")
    verdicts = [
        plan(request(facts, "L4", 1, longest=length)).feasible for length in range(4096, 131072, 4096)
    ]
    assert verdicts == sorted(verdicts, reverse=True)
    assert len(set(verdicts)) == 2
