"""Laws that latencies keep whatever the constants: who waits, who is interrupted, what load is conserved."""

import pytest

from shardwright_planner import (
    EngineOptions,
    PlanRequest,
    Pool,
    ServiceLevel,
    Workload,
    find_gpu,
    find_model,
)
from shardwright_planner.layout import Layout
from shardwright_planner.partition import own_partition
from shardwright_planner.setting import settings
from shardwright_planner.workbench import Workbench

INPUT, OUTPUT = 4096, 128


def clock(*, concurrency=64, output=OUTPUT, tensor=2, pipeline=1, cache=None, name="Qwen/Qwen3-32B"):
    facts = find_model(name)
    assert facts is not None
    request = PlanRequest(
        model=facts,
        pools=(Pool(gpu=find_gpu("H100"), gpus_per_node=8, nodes=1),),
        workload=Workload(input_tokens=INPUT, output_tokens=output),
        service_level=ServiceLevel(concurrency=concurrency),
        engine=EngineOptions(kv_cache_dtype=cache),
    )
    partition = own_partition(facts.layer_count, pipeline)
    layout = Layout(tensor=tensor, pipeline=pipeline, gpus_per_node=tensor * pipeline, partition=partition)
    return Workbench(settings(request)[0]).clock(layout)


@pytest.mark.parametrize("held", [float("inf"), 64, 48, 10])
@pytest.mark.parametrize("pipeline", [1, 2])
def test_requests_in_flight_are_those_that_were_asked_for(held, pipeline):
    # Little's law over the whole closed loop, those that wait for room in the cache included.
    found = clock(pipeline=pipeline)
    latency = found.latency_of(found.work(held))
    in_flight = latency.requests_per_second * (latency.first_s + OUTPUT * latency.token_s)
    assert in_flight == pytest.approx(64)
    assert latency.tokens_per_second == pytest.approx(OUTPUT * latency.requests_per_second)


def test_what_the_cache_does_not_hold_waits_and_slows_nobody_down():
    # Measured: 128 requests of 4,224 tokens on two GPUs that hold about 70 took 157 ms a token and 19.0 s to
    # the first one; 64 of them took 140 ms and 1.4 s.
    found = clock(concurrency=128)
    free, full = found.latency_of(found.work()), found.latency_of(found.work(70))
    alone = clock(concurrency=70).latency()
    assert full.token_s == pytest.approx(alone.token_s)
    assert full.token_s == pytest.approx(0.157, rel=0.1)
    assert full.first_s == pytest.approx(19.0, rel=0.15)
    assert free.token_s > 1.5 * full.token_s
    assert free.first_s < 0.2 * full.first_s


def test_prompts_of_others_delay_only_tokens_that_are_being_made():
    # Each of the others brings one prompt while a request waits and decodes; what falls into the wait is none
    # of its tokens' time.
    short, long = clock(concurrency=8).latency(), clock(concurrency=8, output=4096).latency()
    whole = 7 / OUTPUT * short.prefill_s
    decoding = OUTPUT * short.token_s
    assert short.interference_s == pytest.approx(whole * decoding / (short.first_s + decoding))
    assert short.interference_s < 0.9 * whole
    assert long.interference_s == pytest.approx(7 / 4096 * long.prefill_s, rel=0.02)


def test_a_request_alone_is_interrupted_by_none():
    latency = clock(concurrency=1).latency()
    assert latency.interference_s == 0
    assert latency.token_s == latency.decode.total_s


@pytest.mark.parametrize("name", ["Qwen/Qwen3-32B", "deepseek-ai/DeepSeek-V3"])
def test_an_8_bit_cache_holds_more_and_is_read_no_faster(name):
    wide, narrow = clock(name=name, tensor=8), clock(name=name, tensor=8, cache="fp8")
    assert narrow.setting.cache_bytes == wide.setting.cache_bytes / 2
    assert narrow.latency().decode.cache_s == wide.latency().decode.cache_s


@pytest.mark.parametrize(
    ("tensor", "requests", "rounds"),
    [
        pytest.param(2, 128, 1, id="two GPUs always read each other whole"),
        pytest.param(4, 51, 1, id="510 KiB among four"),
        pytest.param(4, 52, 2, id="520 KiB among four"),
        pytest.param(8, 25, 1, id="250 KiB among eight"),
        pytest.param(8, 26, 2, id="260 KiB among eight"),
    ],
)
def test_large_messages_are_reduced_in_two_rounds(tensor, requests, rounds):
    # Measured: a step of Llama 70B costs 7 to 8 us more per AllReduce from 16 requests on at TP 8, from 32 at
    # TP 4, that is from 256 and 512 KiB.
    found = clock(tensor=tensor)
    assert found.counter.reduce(requests)[1] == rounds
    waits = found.reduce_s(requests) - found.counter.reduce(requests)[0] / found.calibration.nvlink_efficiency
    assert waits == pytest.approx(rounds * found.calibration.reduce_latency_s)
