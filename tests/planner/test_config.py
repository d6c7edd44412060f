"""Reading config.json files: families, wrappers, quantization sections and refusals."""

from dataclasses import replace

import pytest

from shardwright_planner import PlanInputError, find_model, model_from_config
from shardwright_planner.model import Attention, Experts, LatentAttention, LinearAttention, Mamba
from shardwright_planner.quantization import parse_quantization
from shardwright_planner.weights import parameter_count

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


def model(name):
    found = find_model(name)
    assert found is not None
    return found


def mixers(facts):
    return [facts.kinds[kind].mixer for kind in facts.layers]


def test_a_config_and_the_catalogue_give_the_same_facts():
    read = model_from_config({**LLAMA, "bos_token_id": 1, "unheard_of": {"a": [1]}}, name="mine")
    known = model("meta-llama/Llama-3.1-8B")
    assert replace(read, name=known.name, source_digest="", nominal_parameters=8_000_000_000) == known
    assert read.source_digest != ""


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        pytest.param("hidden_size", None, "model.config.hidden_size", id="missing"),
        pytest.param("num_hidden_layers", "many", "model.config.num_hidden_layers", id="a word"),
        pytest.param("num_attention_heads", 0, "model.config.num_attention_heads", id="zero"),
        pytest.param("vocab_size", -5, "model.config.vocab_size", id="negative"),
        pytest.param("vocab_size", 1e30, "model.config.vocab_size", id="absurd"),
        pytest.param("hidden_size", True, "model.config.hidden_size", id="a flag"),
        pytest.param("num_hidden_layers", 100_000, "model.config.num_hidden_layers", id="too many layers"),
        # Refused before anything is made for each of them: they are more than the memory holds.
        pytest.param("num_hidden_layers", 2**31, "model.config.num_hidden_layers", id="layers beyond memory"),
        *(
            pytest.param(
                "rope_scaling",
                {"rope_type": "yarn", "factor": factor},
                "model.config.rope_scaling.factor",
                id=f"positions times {factor:g}",
            )
            for factor in (1e308, float("nan"), 0, -4)
        ),
        *(
            pytest.param(
                "quantization_config",
                {"quant_method": "fp8", "weight_block_size": block},
                "model.config.quantization_config.weight_block_size",
                id=f"blocks of {block}",
            )
            for block in ([128, 0], [128, False], ["128", "wide"])
        ),
        pytest.param(
            "quantization_config",
            {"quant_method": "fp8", "ignore": ["re:("]},
            "model.config.quantization_config",
            id="half an expression",
        ),
        pytest.param(
            "quantization_config",
            {"quant_method": "fp8", "ignore": [f"re:.*gate{number}" for number in range(65)]},
            "model.config.quantization_config",
            id="more expressions than anybody writes",
        ),
        pytest.param(
            "vision_config",
            {"depth": 24, "hidden_size": 1024, "patch_size": 2**31},
            "model.config",
            id="an encoder beyond all others",
        ),
    ],
)
def test_a_size_that_cannot_be_used_is_refused_by_its_key(key, value, field):
    with pytest.raises(PlanInputError) as caught:
        model_from_config({**LLAMA, key: value}, name="mine")
    assert caught.value.field == field


def test_no_more_experts_work_on_a_token_than_there_are():
    experts = {"num_experts": 8, "moe_intermediate_size": 512, "experts_per_token": 9}
    with pytest.raises(PlanInputError, match=r"config\.experts_per_token is 9, but a layer has 8 experts"):
        model_from_config({**LLAMA, **experts}, name="mine")


def test_wrapped_language_models_are_found_and_their_encoder_is_counted():
    facts = model_from_config(
        {
            "architectures": ["Mistral3ForConditionalGeneration"],
            "text_config": LLAMA,
            "vision_config": {
                "hidden_size": 1024,
                "num_hidden_layers": 24,
                "intermediate_size": 4096,
                "patch_size": 14,
            },
        },
        name="wrapped",
    )
    assert (facts.architecture, facts.layer_count) == ("Mistral3ForConditionalGeneration", 32)
    assert parameter_count(facts) == 8_030_261_248
    assert 250e6 < facts.tower.parameters < 500e6


@pytest.mark.parametrize(
    ("name", "windows", "full"),
    [
        ("google/gemma-3-27b-it", 52, 10),
        ("google/gemma-2-9b", 21, 21),
        ("openai/gpt-oss-120b", 18, 18),
        ("mistralai/Mistral-7B-v0.1", 32, 0),
        ("mistralai/Mistral-7B-v0.3", 0, 32),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 36, 12),
        ("Qwen/Qwen2.5-7B", 0, 28),
    ],
)
def test_windowed_layers_are_told_from_full_ones(name, windows, full):
    kinds = mixers(model(name))
    assert all(isinstance(mixer, Attention) for mixer in kinds)
    assert sum(bool(mixer.window) for mixer in kinds) == windows
    assert sum(not mixer.window for mixer in kinds) == full


def test_sparse_models_keep_their_first_layers_dense():
    facts = model("deepseek-ai/DeepSeek-V3")
    sparse = [isinstance(facts.kinds[kind].feed_forward, Experts) for kind in facts.layers]
    assert sparse == [False] * 3 + [True] * 58
    assert all(isinstance(mixer, LatentAttention) for mixer in mixers(facts))
    # The multi-token-prediction layer is in the checkpoint of 684e9 parameters and is not loaded.
    assert 11e9 < facts.extra_parameters < 15e9


def test_hybrids_mix_recurrent_and_attention_layers():
    recurrent = [type(mixer).__name__ for mixer in mixers(model("Qwen/Qwen3.5-35B-A3B"))]
    assert (recurrent.count(LinearAttention.__name__), recurrent.count(Attention.__name__)) == (30, 10)
    blocks = mixers(model("nvidia/Nemotron-H-56B-Base-8K"))
    assert sum(isinstance(mixer, Mamba) for mixer in blocks) == 54
    assert sum(isinstance(mixer, Attention) for mixer in blocks) == 10
    assert sum(mixer is None for mixer in blocks) == 54


@pytest.mark.parametrize(
    ("section", "method", "rate", "cache"),
    [
        pytest.param({"quant_method": "fp8"}, "fp8", 1.0, None, id="per tensor"),
        pytest.param(
            {"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 1 + 4 / 16384, None, id="blocks"
        ),
        pytest.param({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq", 0.5195, None, id="AWQ"),
        pytest.param({"quant_method": "gptq", "bits": 4, "group_size": 32}, "gptq", 0.578, None, id="GPTQ"),
        pytest.param({"quant_method": "mxfp4"}, "mxfp4", 0.53125, None, id="MXFP4"),
        pytest.param(
            {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt_fp4", 0.5625, None, id="NVFP4"
        ),
        pytest.param(
            {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
            "modelopt",
            1.0,
            "fp8",
            id="with a scheme for the cache",
        ),
        pytest.param(
            {
                "quant_method": "compressed-tensors",
                "ignore": ["lm_head"],
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": True}
                    }
                },
            },
            "compressed-tensors",
            0.5 + 2 / 128,
            None,
            id="four bits in groups",
        ),
        pytest.param(
            {"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes", 0.5625, None, id="NF4"
        ),
    ],
)
def test_quantization_is_read_in_the_config_s_own_words(section, method, rate, cache):
    found = parse_quantization(section)
    assert (found.method, found.kv_cache_dtype) == (method, cache)
    assert found.bytes_per_parameter == pytest.approx(rate, rel=1e-3)


def test_an_unknown_method_is_refused_with_the_known_ones():
    with pytest.raises(
        PlanInputError, match=r"quant_method is 'exl9', but the known methods are auto-round, awq"
    ):
        model_from_config({**LLAMA, "quantization_config": {"quant_method": "exl9"}}, name="mine")


@pytest.mark.parametrize(
    ("entries", "left"),
    [
        pytest.param(["lm_head"], set(), id="only the head"),
        pytest.param(["model.layers.*.self_attn"], {"q", "k", "v", "o"}, id="wildcard"),
        pytest.param(["self_attn"], {"q", "k", "v", "o"}, id="a module's name"),
        pytest.param(["re:.*self_attn.o_proj$"], {"o"}, id="expression"),
        pytest.param(["model.layers.0.self_attn.k_proj"], {"k"}, id="one module of the first layer"),
        pytest.param(["language_model.model.layers.0.self_attn.k_proj"], {"k"}, id="under a wrapper"),
    ],
)
def test_ignored_modules_stay_in_sixteen_bits(entries, left):
    config = {**LLAMA, "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": entries}}
    facts = model_from_config(config, name="mine")
    first = facts.kinds[facts.layers[0]]
    assert {module.split(".")[1][0] for module in first.unquantized} == left


@pytest.mark.parametrize(
    ("scaling", "length"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 131072),
        ({"type": "linear", "factor": 2.0}, 262144),
        (None, 131072),
    ],
)
def test_the_longest_position_follows_the_engine(scaling, length):
    assert model_from_config({**LLAMA, "rope_scaling": scaling}, name="mine").max_position == length
