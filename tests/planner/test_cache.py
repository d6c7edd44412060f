"""Pipeline splits, cache groups and blocks as the engine makes them."""

import pytest

from shardwright_planner import find_model
from shardwright_planner.kvcache import CacheTable
from shardwright_planner.partition import balanced_partition, own_partition, stage_ranges


def layout(name, tensor=1, element_bytes=2.0):
    facts = find_model(name)
    assert facts is not None
    return CacheTable(facts, element_bytes, "auto").layout(tensor), facts.layer_count


@pytest.mark.parametrize(
    ("layers", "stages", "want"),
    [
        (61, 2, (31, 30)),
        (61, 4, (15, 15, 16, 15)),
        (126, 4, (31, 32, 32, 31)),
        (126, 8, (15, 16, 16, 16, 16, 16, 16, 15)),
        (80, 3, (27, 27, 26)),
        (94, 4, (23, 24, 24, 23)),
        (36, 8, (4, 4, 4, 5, 5, 5, 5, 4)),
        (5, 1, (5,)),
    ],
)
def test_the_engine_s_own_split(layers, stages, want):
    assert own_partition(layers, stages) == want
    assert stage_ranges(want)[-1][1] == layers


def test_a_balanced_split_gives_light_layers_more_company():
    sizes = balanced_partition([1, 1, 1, 10, 10, 10, 10], [1] * 7, [30, 30])
    assert sizes is not None
    assert sum(sizes) == 7
    assert sizes[0] > sizes[1]


def test_weights_that_no_split_holds_have_no_partition():
    assert balanced_partition([10, 10, 10], [1, 1, 1], [12, 12]) is None


@pytest.mark.parametrize(
    ("name", "tensor", "groups", "block_bytes"),
    [
        pytest.param("openai/gpt-oss-120b", 1, [18, 18], 589_824, id="half of the layers windowed"),
        pytest.param(
            "google/gemma-3-27b-it", 1, [9, 9, 9, 9, 8, 8, 10], 1_310_720, id="five of six windowed"
        ),
        pytest.param("meta-llama/Llama-3.1-70B", 4, [80], 80 * 16 * 2 * 2 * 128 * 2, id="two heads per rank"),
        pytest.param("meta-llama/Llama-3.1-70B", 16, [80], 80 * 16 * 2 * 128 * 2, id="down to one head"),
        pytest.param("Qwen/Qwen3-235B-A22B-FP8", 4, [94], 48_128 * 16, id="one of four heads"),
        pytest.param("deepseek-ai/DeepSeek-V3", 8, [61], 70_272 * 16, id="latent, whole on each rank"),
        pytest.param("mistralai/Mistral-Small-3.2-24B-Instruct-2506", 1, [40], 163_840 * 16, id="wrapped"),
    ],
)
def test_groups_and_blocks(name, tensor, groups, block_bytes):
    cache, layers = layout(name, tensor)
    assert sorted(len(group.layers) for group in cache.groups) == sorted(groups)
    assert cache.block_bytes(0, layers) == block_bytes


def test_a_window_needs_more_blocks_at_admission_than_later():
    cache, _ = layout("openai/gpt-oss-120b")
    steady, admitted = cache.request_blocks(8192), cache.request_blocks(8192, in_flight=16384)
    assert steady == 512 + 128 // 16 + 1
    assert admitted == 512 + 512 + 1


def test_an_attention_block_grows_to_hold_a_recurrent_state():
    cache, _ = layout("Qwen/Qwen3.5-35B-A3B")
    assert cache.block_tokens > 256
    assert cache.block_tokens % 16 == 0
    assert cache.page_bytes >= max(group.spec.state_bytes for group in cache.groups)


def test_groups_spread_evenly_over_stages():
    cache, layers = layout("openai/gpt-oss-120b")
    halves = [cache.block_bytes(start, stop) for start, stop in stage_ranges(own_partition(layers, 2))]
    assert halves == [589_824 // 2] * 2
