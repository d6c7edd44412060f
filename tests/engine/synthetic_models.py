"""Tiny models of every family that is planned, as a config.json and a tokenizer: nothing else decides sizes.

The keys are those of each family's public config.json files; the numbers are small but keep what matters for
splitting: heads, KV heads, widths, experts, layers. A change of keys makes any size from a family.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

Config = dict[str, Any]

_COMMON: Config = {
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 512,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rope_theta": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
_SPARSE: Config = {"num_experts_per_tok": 2, "moe_intermediate_size": 512}
_GEMMA: Config = {
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 64,
    "sliding_window": 1024,
    "tie_word_embeddings": True,
}


def _family(architecture: str, model_type: str, **keys: Any) -> Config:
    return {**_COMMON, "architectures": [architecture], "model_type": model_type, **keys}


_LATENT: Config = {
    "q_lora_rank": 256,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_key_value_heads": 16,
    "head_dim": None,
    "n_shared_experts": 1,
    "n_routed_experts": 16,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "first_k_dense_replace": 2,
    "moe_layer_freq": 1,
    **_SPARSE,
}

FAMILIES: Mapping[str, Config] = MappingProxyType(
    {
        "llama": _family("LlamaForCausalLM", "llama"),
        "mistral": _family("MistralForCausalLM", "mistral", sliding_window=None),
        "qwen2": _family("Qwen2ForCausalLM", "qwen2", head_dim=None, use_sliding_window=False),
        "qwen3": _family("Qwen3ForCausalLM", "qwen3", attention_bias=False),
        "phi": _family(
            "PhiForCausalLM",
            "phi",
            head_dim=None,
            num_key_value_heads=16,
            layer_norm_eps=1e-5,
            partial_rotary_factor=0.5,
            qk_layernorm=False,
            hidden_act="gelu_new",
        ),
        "phi3": _family(
            "Phi3ForCausalLM",
            "phi3",
            head_dim=None,
            original_max_position_embeddings=8192,
            pad_token_id=0,
            sliding_window=None,
        ),
        "gemma2": _family("Gemma2ForCausalLM", "gemma2", **_GEMMA, attn_logit_softcapping=50.0),
        "gemma3": _family("Gemma3ForCausalLM", "gemma3_text", **_GEMMA, sliding_window_pattern=6),
        "mixtral": _family(
            "MixtralForCausalLM",
            "mixtral",
            head_dim=None,
            num_local_experts=8,
            num_experts_per_tok=2,
            sliding_window=None,
        ),
        "qwen3-moe": _family(
            "Qwen3MoeForCausalLM",
            "qwen3_moe",
            num_experts=16,
            decoder_sparse_step=1,
            mlp_only_layers=[],
            norm_topk_prob=True,
            **_SPARSE,
        ),
        "gpt-oss": _family(
            "GptOssForCausalLM",
            "gpt_oss",
            num_local_experts=8,
            num_experts_per_tok=2,
            experts_per_token=2,
            intermediate_size=1024,
            sliding_window=128,
            layer_types=["sliding_attention", "full_attention"] * 4,
            attention_bias=True,
            swiglu_limit=7.0,
            rope_theta=150000.0,
        ),
        "deepseek-v3": _family("DeepseekV3ForCausalLM", "deepseek_v3", **_LATENT),
        "llama4": _family(
            "Llama4ForCausalLM",
            "llama4_text",
            num_local_experts=8,
            num_experts_per_tok=1,
            intermediate_size=1024,
            intermediate_size_mlp=2048,
            interleave_moe_layer_step=1,
            attention_chunk_size=2048,
            no_rope_layers=[1, 1, 1, 0] * 2,
            use_qk_norm=True,
            attn_temperature_tuning=True,
            pad_token_id=0,
        ),
        "nemotron-h": _family(
            "NemotronHForCausalLM",
            "nemotron_h",
            hybrid_override_pattern="M-M*M-M*",
            mamba_num_heads=32,
            mamba_head_dim=64,
            n_groups=8,
            ssm_state_size=128,
            conv_kernel=4,
            chunk_size=128,
            mlp_hidden_act="relu2",
            attention_head_dim=64,
            layer_norm_epsilon=1e-5,
            attention_bias=False,
            mlp_bias=False,
            use_bias=False,
            use_conv_bias=True,
            expand=2,
            rescale_prenorm_residual=True,
            residual_in_fp32=False,
        ),
        "qwen3-next": _family(
            "Qwen3NextForCausalLM",
            "qwen3_next",
            num_experts=16,
            decoder_sparse_step=1,
            mlp_only_layers=[],
            norm_topk_prob=True,
            shared_expert_intermediate_size=512,
            full_attention_interval=4,
            layer_types=[*["linear_attention"] * 3, "full_attention"] * 2,
            linear_num_key_heads=8,
            linear_num_value_heads=16,
            linear_key_head_dim=128,
            linear_value_head_dim=128,
            linear_conv_kernel_dim=4,
            partial_rotary_factor=0.25,
            attn_output_gate=True,
            **_SPARSE,
        ),
    }
)
"""A config.json per family, without its null entries."""

_FP8_SCALED = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False}
_FP8_ACTIVATION = {**_FP8_SCALED, "strategy": "token", "dynamic": True}
QUANTIZATIONS: Mapping[str, Config] = MappingProxyType(
    {
        "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
        "fp8-block": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
        "fbgemm-fp8": {
            "quant_method": "fbgemm_fp8",
            "activation_scale_ub": 1200.0,
            "modules_to_not_convert": ["lm_head"],
        },
        "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
        "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
        "compressed-fp8": {
            "quant_method": "compressed-tensors",
            "format": "float-quantized",
            "quantization_status": "compressed",
            "ignore": ["lm_head"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {**_FP8_SCALED, "strategy": "channel"},
                    "input_activations": _FP8_ACTIVATION,
                }
            },
        },
        "compressed-w8a8": {
            "quant_method": "compressed-tensors",
            "format": "int-quantized",
            "quantization_status": "compressed",
            "ignore": ["lm_head"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {**_FP8_SCALED, "type": "int", "strategy": "channel"},
                    "input_activations": {**_FP8_ACTIVATION, "type": "int"},
                }
            },
        },
        "compressed-w4a16": {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "quantization_status": "compressed",
            "ignore": ["lm_head"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {
                        "num_bits": 4,
                        "type": "int",
                        "symmetric": True,
                        "strategy": "group",
                        "group_size": 128,
                        "dynamic": False,
                    },
                }
            },
        },
        "compressed-nvfp4": {
            "quant_method": "compressed-tensors",
            "format": "nvfp4-pack-quantized",
            "quantization_status": "compressed",
            "ignore": ["lm_head"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {
                        "num_bits": 4,
                        "type": "float",
                        "symmetric": True,
                        "strategy": "tensor_group",
                        "group_size": 16,
                        "dynamic": False,
                    },
                    "input_activations": {
                        "num_bits": 4,
                        "type": "float",
                        "symmetric": True,
                        "strategy": "tensor_group",
                        "group_size": 16,
                        "dynamic": "local",
                    },
                }
            },
        },
        "mxfp4": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
        "modelopt-fp8": {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]},
        "modelopt-nvfp4": {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "group_size": 16,
            "ignore": ["lm_head"],
        },
        "bitsandbytes-4bit": {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "load_in_8bit": False,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_compute_dtype": "bfloat16",
            "bnb_4bit_use_double_quant": True,
        },
        "bitsandbytes-8bit": {
            "quant_method": "bitsandbytes",
            "load_in_4bit": False,
            "load_in_8bit": True,
        },
    }
)
"""A ``quantization_config`` per kind of checkpoint."""


def synthetic_config(family: str, *, quantization: str | None = None, **changed: Any) -> Config:
    """A family's config.json with some keys changed; None takes a key out."""
    config = {**FAMILIES[family], **changed}
    if quantization is not None:
        config["quantization_config"] = QUANTIZATIONS[quantization]
    return {key: value for key, value in config.items() if value is not None}


class ModelFolders:
    """Folders of synthetic models below one root, each made once."""

    def __init__(self, root: Path, tokenizer: Path) -> None:
        self.root = root
        self._tokenizer = tokenizer

    def folder(self, config: Config) -> Path:
        """The folder with this config.json, named by content."""
        text = json.dumps(config, indent=1)
        name = f"{config['model_type']}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        found = self.root / name
        if not found.exists():
            found.mkdir(parents=True)
            (found / "config.json").write_text(text)
            for part in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copyfile(self._tokenizer / part, found / part)
        return found
