"""A spec becomes the planner's question: what is said, what is assumed, what cannot be asked."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright_operator.api.constants import Reason
from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.manifest import parse_manifest
from shardwright_operator.api.plan_request import declared_pool, model_facts, plan_request, resembling
from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_planner import (
    EngineOptions,
    Executor,
    Pins,
    Policy,
    Pool,
    ServiceLevel,
    Workload,
    find_gpu,
    find_model,
    plan,
)
from shardwright_planner.config import model_from_config, with_quantization

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def spec(**sections: Any) -> Any:
    return parse_spec({"model": {"name": MODEL}, **sections})


def test_bare_spec_asks_with_the_stated_defaults() -> None:
    found = plan_request(spec(), ())

    assert found.model == find_model(MODEL)
    assert found.workload == Workload(input_tokens=2048, output_tokens=256)
    assert found.service_level == ServiceLevel(concurrency=32)
    assert found.pins == Pins()
    assert found.engine == EngineOptions(version="0.32")


def test_everything_that_is_said_is_asked() -> None:
    found = plan_request(
        parse_spec(
            {
                "model": {
                    "name": MODEL,
                    "dtype": "bfloat16",
                    "quantization": "fp8",
                    "kvCacheDtype": "fp8_e4m3",
                },
                "workload": {
                    "inputTokens": 100,
                    "outputTokens": 50,
                    "maxModelLength": 4096,
                    "requestsPerSecond": 2.5,
                },
                "slo": {
                    "concurrency": 7,
                    "timePerOutputToken": "150ms",
                    "timeToFirstToken": "30s",
                    "policy": "Require",
                },
                "parallelism": {
                    "tensor": 4,
                    "pipeline": 2,
                    "data": 1,
                    "expert": False,
                    "pipelinePartition": [16, 16],
                    "crossNodeTensor": True,
                },
                "engine": {
                    "image": "registry.example/vllm:v0.33.1",
                    "executor": "ray",
                    "gpuMemoryUtilization": 0.85,
                    "maxNumSeqs": 64,
                    "maxNumBatchedTokens": 4096,
                },
            }
        ),
        (),
    )

    assert found.workload == Workload(
        input_tokens=100, output_tokens=50, max_model_length=4096, requests_per_second=2.5
    )
    assert found.service_level == ServiceLevel(
        concurrency=7, time_per_output_token_s=0.15, time_to_first_token_s=30.0, policy=Policy.REQUIRE
    )
    assert found.pins == Pins(
        tensor=4, pipeline=2, data=1, expert=False, pipeline_partition=(16, 16), cross_node_tensor=True
    )
    assert found.engine == EngineOptions(
        version="0.33",
        dtype="bfloat16",
        quantization="fp8",
        kv_cache_dtype="fp8_e4m3",
        gpu_memory_utilization=0.85,
        max_num_seqs=64,
        max_num_batched_tokens=4096,
        executor=Executor.RAY,
    )


@pytest.mark.parametrize(
    ("words", "keeps"),
    [
        pytest.param([], True, id="nothing said"),
        pytest.param(["--disable-hybrid-kv-cache-manager"], False, id="switched off"),
        pytest.param(["--disable_hybrid_kv_cache_manager=true"], False, id="with a value"),
        pytest.param(["--no-disable-hybrid-kv-cache-manager"], True, id="left on"),
        pytest.param(
            ["--disable-hybrid-kv-cache-manager", "--no-disable-hybrid-kv-cache-manager"],
            True,
            id="last word",
        ),
    ],
)
def test_an_engine_that_keeps_no_windows_is_planned_for(words: list[str], *, keeps: bool) -> None:
    found = plan_request(parse_spec({"model": {"name": MODEL}, "engine": {"extraArgs": words}}), ())

    assert found.engine.keeps_windows is keeps


def test_auto_leaves_the_choice_to_the_planner() -> None:
    found = plan_request(parse_spec({"model": {"name": MODEL, "dtype": "auto", "kvCacheDtype": "auto"}}), ())

    assert (found.engine.dtype, found.engine.kv_cache_dtype) == (None, None)


@pytest.mark.parametrize(
    ("workload", "tokens"),
    [
        pytest.param({"maxModelLength": 1024}, (896, 128), id="only a short limit"),
        pytest.param({"maxModelLength": 2}, (1, 1), id="shortest limit"),
        pytest.param({"maxModelLength": 2048, "inputTokens": 2000}, (2000, 48), id="long prompt"),
        pytest.param({"maxModelLength": 2048, "outputTokens": 1024}, (1024, 1024), id="long answer"),
        pytest.param({"maxModelLength": 8192}, (2048, 256), id="room for the defaults"),
    ],
)
def test_assumed_requests_fit_the_limit(workload: dict[str, int], tokens: tuple[int, int]) -> None:
    found = plan_request(spec(workload=workload), ()).workload

    assert (found.input_tokens, found.output_tokens) == tokens


def test_declared_pool() -> None:
    found = declared_pool(
        spec(
            hardware={"gpu": "NVIDIA-H100-80GB-HBM3", "gpusPerNode": 8, "maxNodes": 2},
            network={"nodeBandwidthGbps": 400},
        )
    )

    assert found == Pool(
        gpu=find_gpu("H100-SXM-80GB"), gpus_per_node=8, nodes=2, name="declared", nic_bytes_per_s=50e9
    )


@pytest.mark.parametrize("missing", ["gpu", "gpusPerNode", "maxNodes"])
def test_pool_that_is_declared_in_part_is_to_be_found(missing: str) -> None:
    hardware = {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2}
    del hardware[missing]

    assert declared_pool(spec(hardware=hardware)) is None


def test_unknown_gpu() -> None:
    with pytest.raises(SpecError, match="H100-SXM-80GB") as caught:
        declared_pool(spec(hardware={"gpu": "H1000", "gpusPerNode": 8, "maxNodes": 2}))

    assert (caught.value.field, caught.value.reason) == ("spec.hardware.gpu", Reason.UNKNOWN_GPU)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        pytest.param("Qwen3-32B", " (Qwen/Qwen3-32B?)", id="the owner left out"),
        pytest.param("llama-3.1-8b-instruct", f" ({MODEL}?)", id="the owner left out, in small letters"),
        pytest.param("somebody/Qwen3-32B", " (Qwen/Qwen3-32B?)", id="another owner"),
        pytest.param("Qwen3-33B", " (Qwen/Qwen3-32B?)", id="the owner left out, and mistyped"),
        pytest.param(
            "Meta-Llama-3.1-8B",
            " (NousResearch/Meta-Llama-3.1-8B or meta-llama/Meta-Llama-3.1-8B?)",
            id="of two owners",
        ),
        pytest.param("llama", "", id="too little to go by"),
        pytest.param("nobody/knows", "", id="like nothing"),
    ],
)
def test_an_unknown_name_is_answered_with_the_closest_ids(name: str, told: str) -> None:
    # For Qwen3-32B there was none, and for Llama-3.1-405B-Instruct another one's quantized model.
    assert resembling(name) == told


def test_unknown_model_names_the_three_ways_and_a_close_one() -> None:
    with pytest.raises(SpecError) as caught:
        plan_request(parse_spec({"model": {"name": "meta-llama/Llama-3.1-8B-Instuct"}}), ())

    text = str(caught.value)
    assert caught.value.reason is Reason.UNKNOWN_MODEL
    assert f"catalogue ({MODEL}?)" in text
    assert "spec.model.config" in text
    assert "--config FILE" in text


def test_what_modelopt_wrote_beside_the_config_may_stand_in_it() -> None:
    """The operator opens no checkpoint: a user copies the section, as the README says."""
    config: dict[str, object] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "vocab_size": 128256,
    }
    section: dict[str, object] = {
        "quant_algo": "FP8",
        "kv_cache_quant_algo": "FP8",
        "exclude_modules": ["lm_head"],
    }
    copied = {**config, "quantization_config": {"quant_method": "modelopt", **section}}
    found = model_facts(parse_spec({"model": {"name": "own/model", "config": copied}}))
    assert found.quantization is not None
    assert found == model_from_config(with_quantization(config, {"quantization": section}), name="own/model")


def test_unusable_config_names_its_key() -> None:
    with pytest.raises(SpecError) as caught:
        plan_request(parse_spec({"model": {"name": "own/model", "config": {"hidden_size": 64}}}), ())

    assert caught.value.field.startswith("spec.model.config")


@pytest.mark.parametrize(
    ("engine", "version"),
    [
        pytest.param({}, "0.32", id="default image"),
        pytest.param({"image": "vllm/vllm-openai:v0.33.0"}, "0.33", id="tag"),
        pytest.param(
            {"image": "host:5000/vllm:0.32.1-cu130@sha256:" + "a" * 64}, "0.32", id="port and digest"
        ),
        pytest.param({"image": "own/vllm:nightly", "version": "0.33.0"}, "0.33", id="said"),
    ],
)
def test_engine_version(engine: dict[str, str], version: str) -> None:
    assert plan_request(spec(engine=engine), ()).engine.version == version


@pytest.mark.parametrize(
    ("engine", "field"),
    [
        pytest.param({"image": "own/vllm:nightly"}, "spec.engine.image", id="tag without a version"),
        pytest.param({"image": "host:0.33/vllm"}, "spec.engine.image", id="port is no tag"),
        pytest.param({"version": "0.8"}, "spec.engine.version", id="unknown version"),
    ],
)
def test_engine_version_that_nobody_knows(engine: dict[str, str], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        plan_request(spec(engine=engine), ())

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("example", "sizes"),
    [
        pytest.param("deepseek-v3", (8, 1, 2, True, 2), id="deepseek-v3"),
        pytest.param("gpt-oss-120b", (1, 1, 1, False, 1), id="gpt-oss-120b"),
        pytest.param("llama-3.1-405b", (8, 2, 1, False, 2), id="llama-3.1-405b"),
        pytest.param("llama-3.1-70b", (4, 1, 1, False, 1), id="llama-3.1-70b"),
        pytest.param("llama-3.1-8b", (1, 1, 1, False, 1), id="llama-3.1-8b"),
        pytest.param("llama-3.3-70b-from-claim", (4, 1, 1, False, 1), id="llama-3.3-70b-from-claim"),
        pytest.param("own-model", (2, 1, 1, False, 1), id="own-model"),
        pytest.param("qwen3-235b", (8, 1, 2, True, 2), id="qwen3-235b"),
        pytest.param("qwen3-32b-pinned", (4, 2, 1, False, 2), id="qwen3-32b-pinned"),
    ],
)
def test_example_is_planned(example: str, sizes: tuple[int, int, int, bool, int]) -> None:
    """TP, PP, DP, expert parallelism and nodes, as the comments of the examples tell them."""
    text = (ROOT / "examples" / f"{example}.yaml").read_text(encoding="utf-8")
    document = next(d for d in yaml.safe_load_all(text) if d["kind"] == "ModelDeployment")
    found = parse_manifest(document).spec
    pool = declared_pool(found)
    assert pool is not None

    made = plan(plan_request(found, (pool,)))

    assert made.feasible
    assert made.slo_predicted is not False
    assert (
        made.tensor_parallel,
        made.pipeline_parallel,
        made.data_parallel,
        made.expert_parallel,
        made.nodes,
    ) == sizes


def test_every_example_is_in_the_table_above() -> None:
    assert len(EXAMPLES) == 9
