"""``ledger``: the two tables in full, and the simple estimator digit for digit."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]

ONE_NODE = ("--gpu", "H100-SXM-80GB", "--gpus-per-node", "8", "--nodes", "1")

SIMPLE = """\
TP x PP   weights/GPU  KV/token/GPU   KV free/GPU        tokens  32K requests
1x1         131.5 GiB             -  does not fit
2x1          65.8 GiB             -  does not fit
4x1          32.9 GiB        80 KiB      30.2 GiB       395,569            12
8x1          16.4 GiB        40 KiB      46.6 GiB     1,222,046            37
16x1          8.2 GiB        40 KiB      54.8 GiB     1,437,500            43  KV heads replicated
8x2           8.2 GiB        20 KiB      54.8 GiB     2,875,001            87
4x2          16.4 GiB        40 KiB      46.6 GiB     1,222,046            37
"""


def test_simple_estimator_prints_the_seven_rows(run: Run) -> None:
    answer = run("ledger", "--simple", "--model", "meta-llama/Llama-3.1-70B")

    assert answer.code == 0
    assert answer.out.endswith(SIMPLE)
    assert "70.6e9 parameters (nominal)" in answer.out
    assert "80e9 bytes, utilization 0.90, 4 GiB reserved" in answer.out


def test_constants_of_the_simple_estimator_are_options(run: Run) -> None:
    answer = run(
        "ledger", "--simple", "--model", "meta-llama/Llama-3.1-70B", "--gpu-bytes", "141e9", "-o", "json"
    )

    record = json.loads(answer.out)
    assert record["assumptions"]["gpu_bytes"] == 141e9
    assert [row["tokens"] > 0 for row in record["rows"]] == [False, True, True, True, True, True, True]


def test_simple_estimator_refuses_a_gpu_that_it_would_not_look_at(run: Run) -> None:
    answer = run("ledger", "--simple", "--model", "meta-llama/Llama-3.1-70B", "--gpu", "H200-SXM-141GB")

    refusal = "--simple knows a GPU by --gpu-bytes alone; leave --gpu out; see shardwright ledger --help."
    assert (answer.code, answer.out, answer.err) == (2, "", f"shardwright: {refusal}\n")


def test_communication_of_four_tensor_ranks(run: Run) -> None:
    """160 AllReduce of 1 MiB, 240 MiB sent per GPU, 0.56 ms at 450 GB/s."""
    answer = run(
        "ledger", "--model", "meta-llama/Llama-3.1-70B", *ONE_NODE, "--tensor", "4", "--tokens", "64"
    )

    assert "160 x 1.00 MiB; each GPU sends 240 MiB, 0.56 ms" in answer.out
    assert "320 KiB per token over all layers" in answer.out


@pytest.mark.parametrize(
    ("model", "options", "kib"),
    [
        pytest.param("meta-llama/Llama-3.1-70B", (), "320", id="16 bits"),
        pytest.param("meta-llama/Llama-3.1-70B", ("--kv-cache-dtype", "fp8"), "160", id="as asked for"),
        pytest.param("nvidia/Llama-3.1-70B-Instruct-FP8", (), "160", id="as the checkpoint has it"),
    ],
)
def test_cached_token_is_as_large_as_its_data_type(
    model: str, options: tuple[str, ...], kib: str, run: Run
) -> None:
    # The ledger counted 16 bits whatever the cache: 320 KiB beside a plan with an FP8 one.
    answer = run("ledger", "--model", model, *ONE_NODE, *options)

    assert f"{kib} KiB per token over all layers" in answer.out


def test_communication_of_four_stages(run: Run) -> None:
    answer = run(
        "ledger",
        "--model",
        "meta-llama/Llama-3.1-70B",
        *ONE_NODE,
        "--tensor",
        "1",
        "--pipeline",
        "4",
        "--tokens",
        "64",
    )

    assert "3 x 2.00 MiB (hidden state and residual)" in answer.out


def test_table_shows_every_layout_also_with_pins(run: Run) -> None:
    arguments = ("ledger", "--model", "meta-llama/Llama-3.1-70B", *ONE_NODE, "-o", "json")

    free, pinned = json.loads(run(*arguments).out), json.loads(run(*arguments, "--tensor", "8").out)

    assert free["memory"] == pinned["memory"]
    assert {row["label"] for row in free["memory"]} >= {"TP1", "TP2", "TP4", "TP8", "TP4 x PP2"}
    assert pinned["communication"]["tensor"] == 8


def test_model_that_fits_nowhere_still_has_a_table(run: Run) -> None:
    answer = run("ledger", "--model", "meta-llama/Llama-3.1-405B", *ONE_NODE)

    assert answer.code == 0
    assert "756.0 GiB" in answer.out


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        pytest.param("--tokens", "0", "0 is no whole number above 0", id="no tokens"),
        pytest.param("--cache-bytes", "0", "0 is no positive number", id="cache of nothing"),
        pytest.param("--gpu-bytes", "inf", "inf is no positive number", id="endless memory"),
        pytest.param("--utilization", "high", "high is no positive number", id="word"),
    ],
)
def test_an_assumption_that_cannot_be_used_is_refused_in_one_line(
    option: str, value: str, said: str, run: Run
) -> None:
    answer = run("ledger", "--simple", "--model", "meta-llama/Llama-3.1-70B", option, value)

    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-405B", "deepseek-ai/DeepSeek-V3"])
def test_no_line_runs_past_the_terminal(
    model: str, columns: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    answer = run("ledger", "--model", model, "--gpu", "H100-SXM-80GB", "--gpus-per-node", "8", "--nodes", "2")

    assert [line for line in answer.out.splitlines() if len(line) > columns] == []
    assert re.findall(r"\d (?:G|Gi|Ki|Mi)\b", answer.out) == [], "one kind of unit everywhere"
