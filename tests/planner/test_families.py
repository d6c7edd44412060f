"""Model families whose caches, states and formats are not those of a plain decoder, against logs."""

from dataclasses import replace

import pytest

from shardwright_planner import (
    EngineOptions,
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
from shardwright_planner.config import with_quantization
from shardwright_planner.engine import find_engine
from shardwright_planner.gpu import GIB
from shardwright_planner.kernels import kernel_count
from shardwright_planner.kvcache import CacheTable
from shardwright_planner.layout import Layout
from shardwright_planner.legality import Legality
from shardwright_planner.quantization import parse_quantization
from shardwright_planner.setting import settings
from shardwright_planner.weights import WeightTable, parameter_count
from shardwright_planner.workbench import Workbench

JAMBA = {
    "model_type": "jamba",
    "architectures": ["JambaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 65536,
    "max_position_embeddings": 262144,
    "attn_layer_period": 8,
    "attn_layer_offset": 4,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_dt_rank": 256,
}


def facts(name):
    found = find_model(name)
    assert found is not None
    return found


def test_a_state_sets_the_block_and_the_logged_tokens_follow():
    # Qwen3.5-27B over four GPUs, engine 0.19: 7.00 GiB were logged as 114,464 tokens. A 32-bit state of
    # 801,792 bytes against 1,024 bytes per token and layer makes a block of 784 tokens.
    layout = CacheTable(facts("Qwen/Qwen3.5-27B"), 2.0, "auto").layout(4)
    assert layout.block_tokens == 784
    assert len(layout.groups) == 4
    blocks = int(7.0 * GIB) // layout.block_bytes(0, 64)
    assert blocks // len(layout.groups) * layout.block_tokens == 114_464


def test_windows_and_wide_layers_share_a_page_and_are_admitted_as_logged():
    # Gemma 4 26B, engine 0.25: 83.89 GiB, steps of 2,496 tokens, 14.78 requests of 262,144 tokens.
    layout = CacheTable(facts("google/gemma-4-26B-A4B"), 2.0, "auto").layout(1)
    assert sorted({group.block_tokens for group in layout.groups}) == [16, 32]
    blocks = int(83.89 * GIB) // layout.block_bytes(0, 30)
    assert blocks / layout.request_blocks(262_144, 2_496) == pytest.approx(14.78, abs=0.01)


def test_an_indexer_adds_to_the_latent_cache():
    # GLM-5.1 in 8 bits, engine 0.19: 32.06 GiB were logged as 343,744 tokens.
    layout = CacheTable(facts("zai-org/GLM-5.1-FP8"), 2.0, "auto").layout(8)
    per_token = layout.block_bytes(0, 78) / layout.block_tokens
    assert per_token == 78 * (2 * 576 + 132)
    assert 32.06 * GIB / per_token == pytest.approx(343_744, rel=0.001)


def test_layers_that_keep_everything_but_differ_in_size_are_summed():
    plain = facts("meta-llama/Llama-3.1-8B")
    (kind,) = plain.kinds
    narrow = replace(kind, mixer=replace(kind.mixer, kv_heads=4))
    mixed = replace(plain, kinds=(kind, narrow), layers=(0,) * 24 + (1,) * 8)
    layout = CacheTable(mixed, 2.0, "auto").layout(1)
    assert layout.is_uniform
    assert layout.block_bytes(0, 32) == 16 * 512 * (24 * 8 + 8 * 4)
    assert layout.block_bytes(24, 32) == 16 * 512 * 8 * 4


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("codellama/CodeLlama-7b-hf", 6_738_546_688),
        ("google/gemma-7b", 8_537_680_896),
        ("microsoft/Phi-3-mini-4k-instruct", 3_821_079_552),
        ("microsoft/Phi-4-mini-instruct", 3_836_021_760),
        ("ByteDance-Seed/Seed-OSS-36B-Instruct", 36_151_104_512),
        ("deepseek-ai/DeepSeek-V2", 235_741_434_880),
        ("allenai/OLMo-2-1124-7B", 7_298_617_344),
        ("01-ai/Yi-34B", 34_388_917_248),
        ("HuggingFaceTB/SmolLM3-3B", 3_075_098_624),
        ("mistralai/Mistral-Nemo-Base-2407", 12_247_782_400),
    ],
)
def test_more_published_counts(name, count):
    assert parameter_count(facts(name)) == count


def test_a_first_generation_state_space_hybrid_is_counted_to_the_last_parameter():
    jamba = model_from_config(JAMBA, name="ai21labs/Jamba-v0.1")
    assert parameter_count(jamba) == 51_570_323_328
    assert [kind.mixer is not None for kind in jamba.kinds] == [True] * len(jamba.kinds)
    attending = [i for i, kind in enumerate(jamba.layers) if hasattr(jamba.kinds[kind].mixer, "kv_heads")]
    assert attending == [4, 12, 20, 28]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"model_type": "deepseek_v4"}, "compressed states", id="compressed states"),
        pytest.param({"model_type": "falcon_h1"}, "side by side", id="both in one layer"),
        pytest.param({"model_type": "kimi_linear"}, "delta attention", id="another state"),
        pytest.param({"model_type": "llama", "block_configs": [{}]}, "differ in width", id="searched layers"),
    ],
)
def test_families_that_generic_fields_describe_wrongly_are_refused_by_name(changes, why):
    with pytest.raises(PlanInputError, match=why):
        model_from_config(JAMBA | changes, name="strange")


def test_a_mixed_checkpoint_has_one_rate_for_experts_and_one_for_the_rest():
    section = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "kv_cache_quant_algo": "FP8",
        "config_groups": {
            "first": {
                "weights": {"num_bits": 8, "type": "float"},
                "input_activations": {"num_bits": 8},
                "targets": ["model.layers.0.self_attn.q_proj"],
            },
            "second": {
                "weights": {"num_bits": 4, "type": "float", "group_size": 16},
                "targets": ["lm_head", "model.layers.0.mlp.experts"],
            },
        },
    }
    found = parse_quantization(section)
    assert (found.method, found.bytes_per_parameter) == ("modelopt_mixed", 1.0)
    assert (found.expert_bytes_per_parameter, found.quantizes_head) == (0.5625, True)
    assert found.kv_cache_dtype == "fp8"


def test_a_mixed_dense_checkpoint_has_narrow_blocks_and_a_narrow_head():
    # Qwen3.6-27B-NVFP4: FP8 mixers, FP4 blocks and head, and all was counted as FP8, 7.5 GiB too much.
    found = WeightTable(facts("nvidia/Qwen3.6-27B-NVFP4"), 2)
    hidden, width, layers, vocabulary = 5120, 17_408, 64, 248_320
    narrow = 3 * hidden * width * layers + vocabulary * hidden
    wide = replace(found.model.quantization, block_bytes_per_parameter=1.0, head_bytes_per_parameter=1.0)
    before = WeightTable(replace(found.model, quantization=wide), 2)
    assert before.total_bytes() - found.total_bytes() == pytest.approx(narrow * (1 - 0.5625), rel=1e-6)
    assert found.total_bytes() / GIB == pytest.approx(19.6, abs=0.1)


def test_shared_experts_of_a_mixed_checkpoint_are_as_narrow_as_the_others():
    scheme = facts("nvidia/Qwen3.6-35B-A3B-NVFP4").quantization
    rates = scheme.expert_bytes_per_parameter, scheme.block_bytes_per_parameter, scheme.head_rate
    assert (scheme.bytes_per_parameter, rates) == (1.0, (0.5625, 0.5625, 0.5625))


def test_a_mix_that_the_config_does_not_tell_is_an_upper_bound_and_says_so():
    model = facts("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4")
    pool = Pool(gpu=find_gpu("H200"), gpus_per_node=8, nodes=1)
    found = plan(PlanRequest(model=model, pools=(pool,)))
    assert found.quantization == "modelopt_mixed"
    assert [w for w in found.warnings if "mixes formats" in w]


def test_weights_of_eight_bits_with_activations_of_no_type_are_no_integers():
    groups = {"g": {"weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8}}}
    assert not parse_quantization(
        {"quant_method": "compressed-tensors", "config_groups": groups}
    ).integer_activations


def test_a_quantization_file_beside_the_config_counts():
    config = {**JAMBA, "num_experts": 0}
    file = {
        "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    }
    plain = model_from_config(config, name="plain")
    packed = model_from_config(with_quantization(config, file), name="packed")
    assert packed.quantization is not None
    assert packed.quantization.method == "modelopt"
    assert WeightTable(packed, 2).total_bytes() < 0.7 * WeightTable(plain, 2).total_bytes()


@pytest.mark.parametrize(
    ("name", "gpu", "refused"),
    [
        pytest.param("Qwen/Qwen3-8B-FP8", "V100", True, id="8 bits before Turing"),
        pytest.param("Qwen/Qwen3-8B-FP8", "A100", False, id="8 bits, weights only"),
        pytest.param("openai/gpt-oss-20b", "T4", True, id="4-bit experts before Ampere"),
        pytest.param("openai/gpt-oss-20b", "H100", False, id="4-bit experts on Hopper"),
    ],
)
def test_formats_need_their_compute_capability(name, gpu, refused):
    rules = Legality(facts(name), find_engine("0.32"))
    assert (rules.capability_violation(find_gpu(gpu)) is not None) is refused


def test_the_head_rule_is_told_before_the_expert_rule():
    # 64 heads and 256 experts over three ranks break both; heads are what cannot be helped.
    config = {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "hidden_size": 6144,
        "intermediate_size": 8192,
        "moe_intermediate_size": 2048,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 8,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
    }
    rules = Legality(model_from_config(config, name="wide"), find_engine("0.32"))
    found = rules.violation(Layout(tensor=3, expert=True, gpus_per_node=3))
    assert found is not None
    assert found.startswith("64 attention heads do not divide by TP 3")


def test_light_first_layers_move_a_layer_to_the_first_stage():
    request = PlanRequest(
        model=facts("deepseek-ai/DeepSeek-V3"),
        pools=(Pool(gpu=find_gpu("H100"), gpus_per_node=8, nodes=4),),
        pins=Pins(tensor=8, pipeline=4),
    )
    made = plan(request)
    assert made.pipeline_partition == (16, 15, 15, 15)
    own = Layout(tensor=8, pipeline=4, nodes=4, gpus_per_node=8, partition=(15, 15, 16, 15))
    fit = Workbench(settings(request)[0]).fit(own)
    assert made.kv_cache_tokens >= 1.05 * fit.tokens(made.max_model_length)


def test_gathered_tokens_of_other_data_ranks_count():
    request = PlanRequest(
        model=facts("deepseek-ai/DeepSeek-V3"),
        pools=(Pool(gpu=find_gpu("H200"), gpus_per_node=8, nodes=2),),
        service_level=ServiceLevel(concurrency=64),
    )
    bench = Workbench(settings(request)[0])
    alone = bench.fit(Layout(tensor=8, expert=True, gpus_per_node=8, partition=(61,)))
    shared = bench.fit(Layout(tensor=1, data=8, expert=True, gpus_per_node=8, partition=(61,)))
    gathered = 2 * 8 * 16384 * 7168 * 2
    assert shared.stages[0].activation - alone.stages[0].activation > 0.9 * gathered


def test_a_start_up_that_would_run_out_beside_its_utilization_does_not_fit():
    # gpt-oss-20b over two GPUs, engine 0.19 at 0.95: the cache was sized and warming up ran out of memory.
    def started(utilization):
        request = PlanRequest(
            model=facts("openai/gpt-oss-20b"),
            pools=(Pool(gpu=find_gpu("H100"), gpus_per_node=8, nodes=1),),
            workload=Workload(input_tokens=1, output_tokens=1, max_model_length=8192),
            service_level=ServiceLevel(concurrency=1),
            engine=EngineOptions(version="0.19", gpu_memory_utilization=utilization),
        )
        return Workbench(settings(request)[0]).fit(Layout(tensor=2, gpus_per_node=2, partition=(24,))).fits

    assert [started(0.90), started(0.95)] == [True, False]


def test_without_the_manager_of_mixed_groups_windows_keep_everything():
    # 36 layers, half of them with a window of 128 tokens, of 8 heads of 64 elements: one group of all layers.
    kept = CacheTable(facts("openai/gpt-oss-120b"), 2.0, "auto").layout(1)
    whole = CacheTable(facts("openai/gpt-oss-120b"), 2.0, "auto", keeps_windows=False).layout(1)
    assert (kept.request_blocks(131_072) * 18, whole.request_blocks(131_072) * 36) == (8201 * 18, 8192 * 36)
    assert whole.is_uniform
    assert whole.block_bytes(0, 36) == 36 * 16 * 2 * 8 * 64 * 2
    request = PlanRequest(
        model=facts("openai/gpt-oss-120b"), pools=(Pool(gpu=find_gpu("H200"), gpus_per_node=8, nodes=1),)
    )
    without = replace(request, engine=EngineOptions(keeps_windows=False))
    assert plan(request).slo_concurrency > 1.7 * plan(without).slo_concurrency


def test_states_cannot_do_without_that_manager():
    request = PlanRequest(
        model=facts("Qwen/Qwen3-Next-80B-A3B-Instruct"),
        pools=(Pool(gpu=find_gpu("H200"), gpus_per_node=8, nodes=1),),
        engine=EngineOptions(keeps_windows=False),
    )
    with pytest.raises(
        PlanInputError, match=r"extraArgs is '--disable-hybrid-kv-cache-manager', .*recurrent"
    ):
        plan(request)


def test_kernels_are_counted_from_a_layer_s_parts():
    def per_layer(name):
        model = facts(name)
        return [kernel_count(kind, model.quantization) for kind in model.kinds]

    assert per_layer("meta-llama/Llama-3.1-8B") == [10]
    assert per_layer("Qwen/Qwen3-8B") == [11]
    assert per_layer("openai/gpt-oss-20b") == [15, 15]
    assert per_layer("MiniMaxAI/MiniMax-M2.5") == [21]
