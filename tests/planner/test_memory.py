"""Memory of a start-up against logs that people published, on the version that most constants come from."""

import pytest

from shardwright_planner import (
    EngineOptions,
    PlanInputError,
    PlanRequest,
    Pool,
    ServiceLevel,
    Workload,
    find_gpu,
    find_model,
)
from shardwright_planner.engine import find_engine
from shardwright_planner.gpu import GIB
from shardwright_planner.layout import Layout
from shardwright_planner.partition import own_partition
from shardwright_planner.setting import settings
from shardwright_planner.weights import WeightTable
from shardwright_planner.workbench import Workbench


def bench(name, *, gpu="H100", utilization=0.95, version="0.19", **engine):
    facts = find_model(name)
    assert facts is not None
    request = PlanRequest(
        model=facts,
        pools=(Pool(gpu=find_gpu(gpu), gpus_per_node=8, nodes=1),),
        workload=Workload(input_tokens=128, output_tokens=128),
        service_level=ServiceLevel(concurrency=1),
        engine=EngineOptions(version=version, gpu_memory_utilization=utilization, **engine),
    )
    return Workbench(settings(request)[0])


# (model, TP, PP, GiB available for the cache, tokens) of engine 0.19 on H100 at utilization 0.95.
LOGGED = [
    pytest.param("meta-llama/Llama-3.1-8B-Instruct", 1, 1, 58.11, 476_016, id="8B"),
    pytest.param("meta-llama/Llama-3.1-8B-Instruct", 2, 1, 63.76, 1_044_688, id="8B over two"),
    pytest.param("meta-llama/Llama-3.1-8B-Instruct", 4, 1, 67.44, 2_209_792, id="8B over four"),
    pytest.param("meta-llama/Llama-3.1-8B-Instruct", 1, 2, 66.54, 1_075_312, id="8B in two stages"),
    pytest.param("meta-llama/Llama-3.1-8B-Instruct", 1, 4, 69.80, 2_257_264, id="8B in four stages"),
    pytest.param("Qwen/Qwen2.5-7B-Instruct", 4, 1, 67.34, 5_043_280, id="7B with one KV head per rank"),
    pytest.param("microsoft/phi-4", 1, 1, 46.08, 241_568, id="14B"),
    pytest.param("mistralai/Mixtral-8x7B-Instruct-v0.1", 2, 1, 28.44, 465_936, id="experts"),
    pytest.param("deepseek-ai/DeepSeek-V2-Lite-Chat", 1, 1, 43.61, 1_505_552, id="latent"),
    pytest.param("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", 4, 1, 54.09, 708_992, id="8 bits"),
]


@pytest.mark.parametrize(("name", "tensor", "pipeline", "gib", "tokens"), LOGGED)
def test_cache_matches_the_log(name, tensor, pipeline, gib, tokens):
    made = bench(name)
    layers = made.setting.model.layer_count
    partition = own_partition(layers, pipeline)
    fit = made.fit(
        Layout(tensor=tensor, pipeline=pipeline, gpus_per_node=tensor * pipeline, partition=partition)
    )
    # The log knows no safety margin; the planner's is a line of its own and is added back here.
    last = fit.stages[-1]
    assert (last.cache + last.margin) / GIB == pytest.approx(gib, rel=0.03)
    unplanned = last.margin // fit.cache.block_bytes(layers - last.layers, layers)
    assert (fit.blocks + unplanned) * 16 == pytest.approx(tokens, rel=0.02)


def test_the_head_and_the_sampler_weigh_on_the_last_stage_only():
    made = bench("meta-llama/Llama-3.1-8B")
    fit = made.fit(Layout(tensor=1, pipeline=4, gpus_per_node=4, partition=(8, 8, 8, 8)))
    activations = [stage.activation for stage in fit.stages]
    assert activations[:3] == [activations[0]] * 3
    # The engine's own log of this start-up: 1.05 GiB in the middle, 2.01 GiB on the last stage.
    assert activations[1] / GIB == pytest.approx(1.05, abs=0.05)
    assert activations[3] / GIB == pytest.approx(2.01, abs=0.05)
    assert fit.stages[0].weights > fit.stages[1].weights


def test_tied_embeddings_are_held_twice_under_a_pipeline():
    made = bench("meta-llama/Llama-3.2-3B")
    alone = made.fit(Layout(tensor=1, partition=(28,))).stages
    piped = made.fit(Layout(tensor=1, pipeline=2, gpus_per_node=2, partition=(14, 14))).stages
    embedding = made.table.embedding_bytes(1)
    assert sum(stage.weights for stage in piped) == alone[0].weights + embedding


@pytest.mark.parametrize(
    ("name", "copies"),
    [
        pytest.param("meta-llama/Llama-3.1-70B", (1, 0, 0, 1), id="embedding first, head last"),
        pytest.param("mistralai/Mixtral-8x7B-v0.1", (2, 2, 2, 2), id="both on every stage"),
        pytest.param("openai/gpt-oss-120b", (2, 2, 2, 2), id="both on every stage, 4-bit experts"),
        pytest.param("google/gemma-3-27b-it", (1, 1, 1, 1), id="one tied matrix on every stage"),
        pytest.param("Qwen/Qwen3.5-35B-A3B", (1, 1, 1, 2), id="embedding on every stage, head last"),
    ],
)
def test_some_model_classes_hold_embedding_or_head_on_every_stage(name, copies):
    table = bench(name, version="0.32").table
    layout = Layout(tensor=2, pipeline=4)
    ends = [table.ends_bytes(layout, stage) for stage in range(4)]
    norm = table.model.hidden_size * 2
    ends[0] -= table.tower_bytes(2)
    ends[3] -= norm
    assert ends == [count * table.embedding_bytes(2) for count in copies]


@pytest.mark.parametrize(
    ("name", "expert", "data", "whole"),
    [
        pytest.param("deepseek-ai/DeepSeek-V3", True, 2, True, id="attention and experts split apart"),
        pytest.param("deepseek-ai/DeepSeek-V3", True, 1, False, id="one data rank"),
        pytest.param("deepseek-ai/DeepSeek-V3", False, 2, False, id="experts cut"),
        pytest.param("zai-org/GLM-4.5", True, 2, False, id="a class that always cuts them"),
    ],
)
def test_shared_experts_are_whole_where_tensor_ranks_share_out_the_tokens(name, expert, data, whole):
    found = bench(name, version="0.32")
    moe = found.setting.model.experts
    assert moe is not None
    layout = Layout(tensor=4, data=data, expert=expert)
    apart = Workbench(found.setting, table=WeightTable(found.setting.model, 2)).table
    kind = next(i for i, k in enumerate(found.setting.model.kinds) if k.feed_forward is moe)
    held = found.table.costs(layout)[kind].read_bytes - apart.costs(layout)[kind].read_bytes
    scheme = found.setting.model.quantization
    rate = scheme.bytes_per_parameter if scheme else 2
    shared = 3 * found.setting.model.hidden_size * moe.shared_intermediate * rate
    assert held == pytest.approx(0.75 * shared if whole else 0, rel=0.001)
    assert found.table.costs(layout)[kind].operations_narrow == apart.costs(layout)[kind].operations_narrow


def test_the_fewest_blocks_of_any_stage_hold_for_all():
    made = bench("meta-llama/Llama-3.1-70B")
    fit = made.fit(Layout(tensor=4, pipeline=2, gpus_per_node=8, partition=(50, 30)))
    assert fit.stages[0].free < fit.stages[1].free
    assert fit.stages[0].cache * 30 == fit.stages[1].cache * 50


@pytest.mark.parametrize(
    ("gpu", "want"),
    [("H100", (8192, 1024)), ("A100", (2048, 256)), ("L40S", (2048, 256)), ("B200", (16384, 1024))],
)
def test_batch_defaults_follow_the_engine_s_classes(gpu, want):
    assert find_engine("0.33").batch_limits(find_gpu(gpu)) == want


@pytest.mark.parametrize("version", ["0.33", "0.33.1", "v0.33.0", "0.33.0rc1"])
def test_a_patch_version_counts_as_its_minor(version):
    assert find_engine(version).version == "0.33"


@pytest.mark.parametrize("version", ["0.5.4", "0.34.0", "latest", "", "033"])
def test_an_unknown_version_lists_the_known_ones(version):
    with pytest.raises(PlanInputError, match=r"known versions of vLLM are 0\.6 to 0\.33"):
        find_engine(version)


@pytest.mark.parametrize(
    ("name", "stated", "want"),
    [
        ("meta-llama/Llama-3.1-8B", None, ("auto", 2.0)),
        ("Qwen/Qwen3-8B-FP8", None, ("auto", 2.0)),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", None, ("fp8", 1.0)),
        ("meta-llama/Llama-3.1-8B", "fp8_e5m2", ("fp8_e5m2", 1.0)),
    ],
)
def test_the_cache_has_the_model_s_dtype_unless_a_scheme_says_otherwise(name, stated, want):
    setting = bench(name, kv_cache_dtype=stated).setting
    assert (setting.cache_dtype, setting.cache_bytes) == want
