"""The numbers out of the metrics' text."""

import pytest

from shardwright_operator.measure_text import Mean, Sample, sample_of

TEXT = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta-llama/Llama"} 3.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="None",num_gpu_blocks="573"} 1.0
vllm:num_preemptions_total{engine="0",model_name="meta-llama/Llama"} 2.0
vllm:num_preemptions_created{engine="0",model_name="meta-llama/Llama"} 1.7e+09
vllm:request_time_per_output_token_seconds_bucket{engine="0",le="0.01",model_name="a b} c"} 7.0
vllm:request_time_per_output_token_seconds_sum{engine="0",model_name="a b} c"} 1.5
vllm:request_time_per_output_token_seconds_count{engine="0",model_name="a b} c"} 30.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 9.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 30.0
vllm:request_prompt_tokens_sum{engine="0",model_name="m"} 60000.0
vllm:request_prompt_tokens_count{engine="0",model_name="m"} 30.0
python_gc_objects_collected_total{generation="0"} 1234.0
"""


def test_one_engine() -> None:
    assert sample_of(TEXT) == Sample(
        kv_cache_blocks=573,
        kv_block_tokens=16,
        kv_cache_tokens=9168,
        running=3.0,
        preemptions=2.0,
        time_per_output_token_s=Mean(total=1.5, count=30.0),
        time_to_first_token_s=Mean(total=9.0, count=30.0),
        prompt_tokens=Mean(total=60000.0, count=30.0),
    )


def test_engines_of_data_parallel_ranks_add_up() -> None:
    found = sample_of(TEXT + TEXT.replace('engine="0"', 'engine="1"'))

    assert (found.kv_cache_blocks, found.kv_cache_tokens, found.kv_block_tokens) == (1146, 18336, 16)
    assert (found.running, found.preemptions, found.prompt_tokens.count) == (6.0, 4.0, 60.0)


def test_tokens_that_the_engine_counts_itself() -> None:
    """With several kinds of layers a block of each holds the same tokens (vLLM 0.32 config/cache.py)."""
    assert sample_of(TEXT.replace('tokens="None"', 'tokens="5000"')).kv_cache_tokens == 5000


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("<html>not found</html>", id="something else"),
        pytest.param(TEXT.replace('num_gpu_blocks="573"', 'num_gpu_blocks="None"'), id="not profiled yet"),
        pytest.param("vllm:num_requests_running 1.0x\nvllm:cache_config_info{} 1.0", id="odd values"),
    ],
)
def test_what_is_not_said_is_not_known(text: str) -> None:
    assert sample_of(text).kv_cache_tokens is None
