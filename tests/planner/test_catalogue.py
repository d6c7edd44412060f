"""Parameter counts of the catalogue against published ones, to the last parameter."""

import pytest

from shardwright_planner import find_model, model_names
from shardwright_planner.kvcache import layer_spec
from shardwright_planner.layout import Layout
from shardwright_planner.weights import WeightTable, padded_vocabulary, parameter_count

# The numbers of parameters that model cards or safetensors headers state; the language model alone, without
# encoders and multi-token-prediction layers.
PUBLISHED = {
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-2-13b-hf": 13_015_864_320,
    "meta-llama/Llama-2-70b-hf": 68_976_648_192,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "meta-llama/Llama-3.1-405B": 405_853_388_800,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "meta-llama/Llama-3.3-70B-Instruct": 70_553_706_496,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-14B": 14_770_033_664,
    "Qwen/Qwen2.5-32B": 32_763_876_352,
    "Qwen/Qwen2.5-72B": 72_706_203_648,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-1.7B": 1_720_574_976,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/Qwen3-235B-A22B": 235_093_634_560,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mistral-7B-v0.3": 7_248_023_552,
    "mistralai/Mistral-Small-24B-Instruct-2501": 23_572_403_200,
    "mistralai/Mistral-Large-Instruct-2407": 122_610_069_504,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "mistralai/Mixtral-8x22B-v0.1": 140_620_634_112,
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
    "deepseek-ai/DeepSeek-V3": 671_026_419_200,
    "openai/gpt-oss-20b": 20_914_757_184,
    "openai/gpt-oss-120b": 116_829_156_672,
    "google/gemma-2-9b": 9_241_705_984,
    "google/gemma-2-27b": 27_227_128_320,
    "google/gemma-3-1b-it": 999_885_952,
    "microsoft/phi-4": 14_659_507_200,
    "microsoft/Phi-3-medium-4k-instruct": 13_960_238_080,
    "Qwen/QwQ-32B": 32_763_876_352,
    "Qwen/Qwen2.5-VL-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": 480_154_875_392,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": 79_674_391_296,
    "google/gemma-2b": 2_506_172_416,
    "google/gemma-2-2b": 2_614_341_888,
    "meta-llama/Meta-Llama-3-8B": 8_030_261_248,
    "meta-llama/Meta-Llama-3-70B": 70_553_706_496,
    "codellama/CodeLlama-13b-hf": 13_016_028_160,
    "codellama/CodeLlama-34b-hf": 33_743_970_304,
    "codellama/CodeLlama-70b-hf": 68_976_910_336,
    "deepseek-ai/deepseek-coder-6.7b-instruct": 6_740_512_768,
    "moonshotai/Kimi-K2-Instruct": 1_026_408_232_448,
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": 23_572_403_200,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 1_100_048_384,
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": 1_711_376_384,
    "01-ai/Yi-34B": 34_388_917_248,
    "ByteDance-Seed/Seed-OSS-36B-Instruct": 36_151_104_512,
    "HuggingFaceTB/SmolLM3-3B": 3_075_098_624,
    "allenai/OLMo-2-1124-7B": 7_298_617_344,
    "codellama/CodeLlama-7b-hf": 6_738_546_688,
    "deepseek-ai/DeepSeek-V2": 235_741_434_880,
    "deepseek-ai/deepseek-llm-67b-chat": 67_425_001_472,
    "google/gemma-7b": 8_537_680_896,
    "ibm-granite/granite-3.1-2b-instruct": 2_533_531_648,
    "ibm-granite/granite-3.1-8b-instruct": 8_170_848_256,
    "microsoft/Phi-3-mini-4k-instruct": 3_821_079_552,
    "microsoft/Phi-3-mini-128k-instruct": 3_821_079_552,
    "microsoft/Phi-4-mini-instruct": 3_836_021_760,
    "mistralai/Mistral-Nemo-Base-2407": 12_247_782_400,
    "mistralai/Codestral-22B-v0.1": 22_247_282_688,
    "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
    "meta-llama/Llama-3.1-70B-Instruct": 70_553_706_496,
    "meta-llama/Llama-3.1-405B-Instruct": 405_853_388_800,
    "meta-llama/Llama-3.2-1B-Instruct": 1_235_814_400,
    "meta-llama/Llama-3.2-3B-Instruct": 3_212_749_824,
    "Qwen/Qwen2.5-0.5B-Instruct": 494_032_768,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "Qwen/Qwen2.5-3B-Instruct": 3_085_938_688,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-14B-Instruct": 14_770_033_664,
    "Qwen/Qwen2.5-32B-Instruct": 32_763_876_352,
    "Qwen/Qwen2.5-72B-Instruct": 72_706_203_648,
    "Qwen/Qwen2.5-Coder-32B-Instruct": 32_763_876_352,
    "Qwen/Qwen3-30B-A3B-Instruct-2507": 30_532_122_624,
    "Qwen/Qwen3-235B-A22B-Instruct-2507": 235_093_634_560,
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": 30_532_122_624,
    "deepseek-ai/DeepSeek-R1": 671_026_419_200,
    "deepseek-ai/DeepSeek-R1-0528": 671_026_419_200,
    "deepseek-ai/DeepSeek-V3.1": 671_026_419_200,
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": 8_030_261_248,
    "deepseek-ai/DeepSeek-R1-Distill-Llama-70B": 70_553_706_496,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B": 14_770_033_664,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": 32_763_876_352,
    "mistralai/Mistral-7B-Instruct-v0.3": 7_248_023_552,
    "mistralai/Mixtral-8x7B-Instruct-v0.1": 46_702_792_704,
    "mistralai/Mixtral-8x22B-Instruct-v0.1": 140_630_071_296,
    "mistralai/Mistral-Large-Instruct-2411": 122_610_069_504,
    "google/gemma-2-9b-it": 9_241_705_984,
    "google/gemma-2-27b-it": 27_227_128_320,
    "NousResearch/Hermes-3-Llama-3.1-70B": 70_553_706_496,
}
# Published totals of files that hold more than the language model, and what that is: an encoder of known size
# with its projector, or a prediction layer with an embedding and a head of its own.
SIGLIP = 416_866_032
WITH_OTHERS = {
    "google/gemma-3-4b-it": (4_300_079_472, SIGLIP + 1152 * 2560 + 1152),
    "google/gemma-3-12b-it": (12_187_325_040, SIGLIP + 1152 * 3840 + 1152),
    "google/gemma-3-27b-it": (27_432_406_640, SIGLIP + 1152 * 5376 + 1152),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": (108_641_793_536, 871_932_416),
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": (401_583_781_376, 871_932_416),
    "zai-org/GLM-4.5": (358_337_791_296, 2 * 151_552 * 5120),
    "zai-org/GLM-4.5-Air": (110_468_824_832, 2 * 151_552 * 4096),
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items(), ids=PUBLISHED.keys())
def test_parameters_match_the_published_count(name, count):
    facts = find_model(name)
    assert facts is not None
    assert parameter_count(facts) == count


@pytest.mark.parametrize(("name", "total", "others"), [(n, *v) for n, v in WITH_OTHERS.items()])
def test_parameters_and_what_lies_beside_them_match_the_published_total(name, total, others):
    facts = find_model(name)
    assert facts is not None
    assert parameter_count(facts) + facts.extra_parameters + others == total


def test_every_entry_of_the_catalogue_can_be_read():
    facts = [find_model(name) for name in model_names()]
    assert len(facts) >= 100
    assert all(found is not None and parameter_count(found) > 10**8 for found in facts)


def test_names_are_found_in_any_case_and_strangers_are_not():
    assert find_model("META-LLAMA/llama-3.1-8b") == find_model("meta-llama/Llama-3.1-8B")
    assert find_model("example/unheard-of") is None


# Layers, two sides, KV heads, head size and 2 bytes; or latent and rotary part for latent attention.
CACHED = {
    "meta-llama/Llama-2-7b-hf": 32 * 2 * 32 * 128 * 2,
    "meta-llama/Llama-3.1-8B": 32 * 2 * 8 * 128 * 2,
    "meta-llama/Llama-3.1-70B": 80 * 2 * 8 * 128 * 2,
    "meta-llama/Llama-3.1-405B": 126 * 2 * 8 * 128 * 2,
    "meta-llama/Llama-3.2-1B": 16 * 2 * 8 * 64 * 2,
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": 48 * 2 * 8 * 128 * 2,
    "Qwen/Qwen2.5-7B": 28 * 2 * 4 * 128 * 2,
    "Qwen/Qwen3-0.6B": 28 * 2 * 8 * 128 * 2,
    "Qwen/Qwen3-32B": 64 * 2 * 8 * 128 * 2,
    "Qwen/Qwen3-235B-A22B": 94 * 2 * 4 * 128 * 2,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": 12 * 2 * 2 * 256 * 2,
    "mistralai/Mistral-7B-v0.3": 32 * 2 * 8 * 128 * 2,
    "mistralai/Mixtral-8x22B-v0.1": 56 * 2 * 8 * 128 * 2,
    "google/gemma-2-27b": 46 * 2 * 16 * 128 * 2,
    "google/gemma-3-27b-it": 62 * 2 * 16 * 128 * 2,
    "google/gemma-7b": 28 * 2 * 16 * 256 * 2,
    "microsoft/phi-4": 40 * 2 * 10 * 128 * 2,
    "microsoft/Phi-3-mini-4k-instruct": 32 * 2 * 32 * 96 * 2,
    "tiiuae/falcon-7b": 32 * 2 * 1 * 64 * 2,
    "openai/gpt-oss-120b": 36 * 2 * 8 * 64 * 2,
    "zai-org/GLM-4.5": 92 * 2 * 8 * 128 * 2,
    "nvidia/Nemotron-H-56B-Base-8K": 10 * 2 * 8 * 128 * 2,
    "deepseek-ai/DeepSeek-V3": 61 * (512 + 64) * 2,
    "deepseek-ai/DeepSeek-V2-Lite": 27 * (512 + 64) * 2,
    "moonshotai/Kimi-K2-Instruct": 61 * (512 + 64) * 2,
}


@pytest.mark.parametrize(("name", "size"), CACHED.items(), ids=CACHED.keys())
def test_a_token_caches_what_the_formula_by_hand_says(name, size):
    facts = find_model(name)
    assert facts is not None
    specs = [layer_spec(kind, 1, 2.0, "auto") for kind in facts.kinds]
    kept = [specs[kind] for kind in facts.layers]
    assert sum(spec.token_bytes for spec in kept if spec is not None) == size


@pytest.mark.parametrize(
    ("name", "tensor", "gib"),
    [
        pytest.param("meta-llama/Llama-3.1-8B", 1, 14.99, id="16 bits"),
        pytest.param("Qwen/Qwen3-32B", 1, 61.03, id="16 bits, dense"),
        pytest.param("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", 2, 33.88, id="8 bits, head in 16"),
        pytest.param("mistralai/Mixtral-8x7B-Instruct-v0.1", 2, 43.51, id="experts"),
        pytest.param("deepseek-ai/DeepSeek-V2-Lite-Chat", 1, 29.43, id="latent attention"),
        pytest.param("openai/gpt-oss-20b", 2, 7.01, id="4-bit experts, padded"),
    ],
)
def test_weights_per_gpu_match_start_up_logs(name, tensor, gib):
    facts = find_model(name)
    assert facts is not None
    counts = [facts.layers.count(kind) for kind in range(len(facts.kinds))]
    loaded = WeightTable(facts, 2).stage_bytes(Layout(tensor=tensor), 0, counts)
    assert loaded / 2**30 == pytest.approx(gib, rel=0.01)


def test_the_vocabulary_is_padded_to_64():
    assert [padded_vocabulary(size) for size in (1, 64, 65, 128256)] == [64, 64, 128, 128256]
