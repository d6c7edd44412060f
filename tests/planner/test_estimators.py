"""The simple estimator and the ledgers against figures that can be checked by hand."""

from dataclasses import replace

import pytest

from shardwright_planner import PlanRequest, Pool, find_gpu, find_model
from shardwright_planner.gpu import GIB
from shardwright_planner.ledger import (
    communication_ledger,
    memory_table,
    pipeline_bubble,
    render_communication,
    render_memory,
)
from shardwright_planner.simple import cached_token_bytes, render_simple, simple_table

MIB = 1024**2


def model(name):
    found = find_model(name)
    assert found is not None
    return found


SEVENTY = model("meta-llama/Llama-3.1-70B")

SEVEN_ROWS = """\
meta-llama/Llama-3.1-70B: 70.6e9 parameters (nominal), 2 bytes each
GPU of 80e9 bytes, utilization 0.90, 4 GiB reserved, weights spread evenly

TP x PP   weights/GPU  KV/token/GPU   KV free/GPU        tokens  32K requests
1x1         131.5 GiB             -  does not fit
2x1          65.8 GiB             -  does not fit
4x1          32.9 GiB        80 KiB      30.2 GiB       395,569            12
8x1          16.4 GiB        40 KiB      46.6 GiB     1,222,046            37
16x1          8.2 GiB        40 KiB      54.8 GiB     1,437,500            43  KV heads replicated
8x2           8.2 GiB        20 KiB      54.8 GiB     2,875,001            87
4x2          16.4 GiB        40 KiB      46.6 GiB     1,222,046            37"""


def test_the_seven_rows_come_out_digit_for_digit():
    assert render_simple(simple_table(SEVENTY)) == SEVEN_ROWS


def test_the_exact_count_would_give_another_number_of_tokens():
    table = simple_table(replace(SEVENTY, nominal_parameters=None), shapes=((4, 1),))
    assert (table.parameters, table.is_nominal, table.rows[0].tokens) == (70_553_706_496, False, 395_851)


def test_tensor_parallel_traffic_of_a_decode_step():
    ledger = communication_ledger(SEVENTY, tokens=64, tensor=4)
    assert (ledger.reduces, ledger.reduce_bytes) == (160, MIB)
    assert ledger.reduce_sent_bytes == 240 * MIB
    assert ledger.reduce_s == pytest.approx(0.56e-3, rel=0.01)


def test_pipeline_traffic_of_a_decode_step():
    ledger = communication_ledger(SEVENTY, tokens=64, pipeline=4)
    assert (ledger.sends, ledger.send_bytes, ledger.reduces) == (3, 2 * MIB, 0)


def test_expert_traffic_of_one_token():
    ledger = communication_ledger(model("deepseek-ai/DeepSeek-V3"), tokens=1)
    assert (ledger.exchange_token_bytes, ledger.expert_layers) == (229_376, 58)


@pytest.mark.parametrize(("microbatches", "percent"), [(1, 50), (4, 20), (8, 11)])
def test_the_bubble_of_two_stages(microbatches, percent):
    assert round(100 * pipeline_bubble(2, microbatches)) == percent


def test_cached_bytes_of_a_token_and_of_a_long_request():
    assert cached_token_bytes(SEVENTY) == 320 * 1024
    assert cached_token_bytes(SEVENTY) * 32 * 1024 == 10 * GIB
    assert cached_token_bytes(model("deepseek-ai/DeepSeek-V3")) == 70_272


def test_handing_a_prompt_over_between_replicas():
    assert 1000 * cached_token_bytes(SEVENTY) == pytest.approx(328e6, rel=0.01)
    assert 1000 * cached_token_bytes(SEVENTY) / 12.5e9 == pytest.approx(0.026, rel=0.02)


def test_reading_all_weights_bounds_a_single_request():
    assert 2 * 70_553_706_496 / find_gpu("H100").bandwidth_bytes_per_s == pytest.approx(0.042, rel=0.01)


def test_the_memory_table_names_what_each_layout_holds_or_lacks():
    pool = Pool(gpu=find_gpu("H100"), gpus_per_node=8, nodes=2)
    rows = memory_table(PlanRequest(model=SEVENTY, pools=(pool,)))
    by_label = {row.label: row for row in rows}
    assert not by_label["TP2"].fits
    assert by_label["TP2"].note.startswith("weights of 65.7 GiB per GPU leave no cache")
    assert by_label["TP8 x PP2"].fits
    assert by_label["TP8 x PP2"].tokens > 2 * by_label["TP8"].tokens
    text = render_memory(rows, width=400)
    assert text.count("\n") == len(rows)


def test_the_communication_ledger_reads_like_a_page():
    text = render_communication(communication_ledger(SEVENTY, tokens=64, tensor=4, pipeline=2))
    assert "AllReduce   160 x 1.00 MiB; each GPU sends 240 MiB, 0.56 ms" in text
    assert "KV cache    320 KiB per token" in text
    assert "1: 50 %" in text
