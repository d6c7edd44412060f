"""The accuracy tool as people run it, and the promises that the planner makes about itself."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).with_name("accuracy.py")
PUBLISHED = TOOL.parent / "published"


def run(*arguments):
    return subprocess.run(
        [sys.executable, str(TOOL), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout


@pytest.fixture(scope="module")
def found():
    return json.loads(run("-o", "json"))


@pytest.mark.parametrize("constants", ["shippedConstants", "leaveOneModelOut"])
def test_memory_is_foreseen_as_promised(found, constants):
    part = found["capacity"][constants]
    assert part["weights"]["median"] <= 0.01
    assert part["kvTokens"]["median"] <= 0.04
    assert part["kvTokens"]["p90"] <= 0.12
    assert part["overPromised"]["share"] <= 0.03
    assert part["fits"]["recall"] >= 0.95


def test_the_one_start_up_that_is_not_foreseen_is_told_with_its_ledger(found):
    wrong = found["capacity"]["wrongVerdicts"]
    assert list(wrong) == ["kv040"]
    assert wrong["kv040"].startswith(
        "openai/gpt-oss-20b: it fits by the profiler's own sum and ran out beside it. Beside the utilization "
        "are 3.96 GiB; counted are context and channels 0.51, buffers after profiling 0.53, CUDA graphs "
        "1.40, slack 0.40 (graphs logged: 1.84), so that 1.12 GiB"
    )


def test_every_target_has_a_figure_and_a_verdict(found):
    missed = {t["name"] for part in found.values() for t in part["targets"] if t["reached"] is False}
    assert missed == {"recall of does not fit"}
    assert len(found["capacity"]["targets"]) == 6
    assert len(found["latency"]["targets"]) == 7


def test_pairs_in_the_wrong_order_are_counted_by_system(found):
    orders, summary = found["latency"]["wrongOrders"], found["latency"]["leaveOneModelOut"]["orderings"]
    systems = orders["bySystem"].values()
    assert sum(counts["pairs"] for counts in systems) == summary["pairs"]
    wrong = sum(counts.get("wrong", 0) for counts in systems)
    assert 1 - wrong / summary["pairs"] == pytest.approx(summary["right"], abs=1e-4)


@pytest.mark.parametrize("constants", ["shippedConstants", "leaveOneModelOut"])
def test_latency_is_foreseen_as_promised(found, constants):
    part = found["latency"][constants]
    assert part["timePerOutputToken"]["median"] <= 0.12
    assert part["timeToFirstToken"]["median"] <= 0.30
    assert part["orderings"]["right"] >= 0.97
    assert part["verdicts"]["30ms"]["falseAccepts"] <= 0.05
    assert part["verdicts"]["30ms"]["falseRejects"] <= 0.10


def test_other_predictors_are_scored_on_the_same_rows(found):
    ours = found["latency"]["leaveOneModelOut"]["timePerOutputToken"]
    theirs = found["latency"]["comparators"]["aiconfigurator SILICON"]["timePerOutputToken"]
    assert ours["rows"] == theirs["rows"] == 48
    assert ours["median"] < theirs["median"]


def test_the_text_names_rows_columns_and_what_is_unmeasured():
    text = run()
    assert "Capacity: 48 rows given, 47 scored, 1 skipped" in text
    assert "skipped for gpu: 1\n    kv098: '24GB-class (inferred)' is no GPU of the catalogue" in text
    assert "rows with PP > 1: 3; pipeline figures rest on next to no measurements" in text
    assert "TP1 x PP4" in text


def test_files_of_others_are_read_and_what_they_lack_is_named(tmp_path):
    lines = (PUBLISHED / "capacity.csv").read_text(encoding="utf-8").splitlines()
    columns = lines[0].split(",")
    row = dict.fromkeys(columns, "")
    row |= {"id": "mine", "vllm_version": "0.33.0", "model_id": "Qwen/Qwen3-8B", "gpu": "H200", "tp": "2"}
    rows = [row | {"outcome": "fit"}, row | {"id": "nothing"}, row | {"id": "strange", "gpu": "TPU"}]
    file = tmp_path / "mine.csv"
    file.write_text("\n".join([lines[0], *(",".join(r[c] for c in columns) for r in rows)]), encoding="utf-8")
    part = json.loads(run("--capacity", file, "-o", "json"))["capacity"]
    counts = ("given", "scored", "skipped", "skippedForColumn")
    assert {name: part["rows"][name] for name in counts} == {
        "given": 3,
        "scored": 1,
        "skipped": 2,
        "skippedForColumn": {"gpu": ["strange"], "outcome": ["nothing"]},
    }
    assert part["shippedConstants"]["fits"] == {"right": 1, "of": 1, "recall": 1.0}


@pytest.mark.parametrize("option", ["--capacity", "--latency"])
@pytest.mark.parametrize("text", ["", "id,a,b\n,1,2\n3\n4,5,6,7\n\x00;\x02\n"], ids=["empty", "foreign"])
def test_a_file_with_nothing_to_score_says_why_for_every_row(option, text, tmp_path):
    file = tmp_path / "odd.csv"
    file.write_text(text, encoding="utf-8")
    rows = json.loads(run(option, file, "-o", "json"))[option.removeprefix("--")]["rows"]
    assert rows["scored"] == 0
    assert rows["skipped"] == rows["given"] == len(rows["skippedRows"])
    assert all(row["id"] and row["column"] and row["reason"] for row in rows["skippedRows"])


# Cells changed in a row, and what the tool says of it: column and why, or nothing where it is scored.
CHANGED = {
    "capacity": [
        ({"model_id": "example/unheard-of"}, "model_id", "is no model of the catalogue"),
        ({"tp": "nan"}, "tp", "'nan' is no whole number from 1 to 4096"),
        ({"tp": ""}, "tp", "nothing stands there"),
        ({"gpu_memory_utilization": "95"}, "gpu_memory_utilization", "no share from 0.05 to 1"),
        ({"vllm_version": "9.9.9"}, "vllm_version", "the known versions of vLLM are 0.6 to"),
        ({"kv_dtype": "int3"}, "kv_dtype", "is no cache dtype"),
        ({"notes": "OOM? a low-confidence negative"}, "notes", "the error was not read"),
        ({"kv_tokens": "126,256", "max_num_seqs": "1024 (default)"}, None, None),
        ({"gpu_memory_utilization": "", "kv_tokens": "nan"}, None, None),
    ],
    "latency": [
        ({"model_path": ""}, "model_path", "nothing stands there"),
        ({"system": "abacus"}, "system", "is no GPU of the catalogue"),
        ({"silicon_tpot_ms": "NaN"}, "silicon_tpot_ms", "is no number above zero"),
        ({"batch_size": "0"}, "batch_size", "is no number above zero"),
        ({"pp_size": "4096"}, "pp_size", "4096 stages for the"),
        ({"isl": "1e12"}, "isl/osl/batch_size", "workload.inputTokens: it is a whole number"),
        ({"moe_ep_size": "0.0", "attention_dp_size": ""}, None, None),
        ({"silicon_ttft_ms": "", "aic_sol_tpot_ms": "inf"}, None, None),
    ],
}


@pytest.fixture(scope="module")
def skipped(tmp_path_factory):
    """What the tool says of the changed rows, in a file as spreadsheets write it and with a column more."""
    found = {}
    for kind, cases in CHANGED.items():
        with (PUBLISHED / f"{kind}.csv").open(newline="", encoding="utf-8") as source:
            first = next(csv.DictReader(source))
        file = tmp_path_factory.mktemp(kind) / f"{kind}.csv"
        with file.open("w", newline="", encoding="utf-8-sig") as target:
            writer = csv.DictWriter(target, fieldnames=[*first, "remark"])
            writer.writeheader()
            writer.writerows(first | cells | {"id": str(cells), "remark": "more"} for cells, _, _ in cases)
        rows = json.loads(run(f"--{kind}", file, "-o", "json"))[kind]["rows"]
        found[kind] = {row["id"]: (row["column"], row["reason"]) for row in rows["skippedRows"]}
    return found


@pytest.mark.parametrize(
    ("kind", "cells", "column", "reason"),
    [(kind, *case) for kind, cases in CHANGED.items() for case in cases],
    ids=[f"{kind} {cells}" for kind, cases in CHANGED.items() for cells, _, _ in cases],
)
def test_a_row_is_scored_or_skipped_with_its_column_and_why(kind, cells, column, reason, skipped):
    found = skipped[kind].get(str(cells))
    if column is None:
        assert found is None
    else:
        assert found is not None
        assert found[0] == column
        assert reason in found[1]


def test_rows_of_one_model_are_scored_with_constants_of_the_others(tmp_path):
    lines = (PUBLISHED / "latency.csv").read_text(encoding="utf-8").splitlines()
    file = tmp_path / "one.csv"
    file.write_text(
        "\n".join([lines[0], *(line for line in lines[1:] if "gpt-oss" in line)]), encoding="utf-8"
    )
    part = json.loads(run("--latency", file, "-o", "json"))["latency"]
    left_out = part["leaveOneModelOut"]["timePerOutputToken"]
    assert left_out["rows"] == part["rows"]["scored"] > 0
    assert left_out["median"] <= 0.15
    assert left_out != part["shippedConstants"]["timePerOutputToken"]


def test_a_file_that_is_not_there_is_one_line():
    done = subprocess.run(
        [sys.executable, str(TOOL), "--capacity", "nowhere.csv"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stderr == "accuracy: [Errno 2] No such file or directory: 'nowhere.csv'\n"


def test_the_fitting_procedure_gives_constants_near_the_shipped_ones():
    text = subprocess.run(
        [sys.executable, str(TOOL.with_name("calibration.py"))],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    fitted = json.loads(text)
    # The shipped constants come from all 352 points, of which the fixture holds every sixth distinct one.
    assert fitted["latency"]["kernel_s"] == pytest.approx(3.6e-6, rel=0.2)
    assert fitted["latency"]["cache_efficiency"] == pytest.approx(0.70, rel=0.2)
    assert fitted["memory"]["from 0.17"]["samplerCopies"] == pytest.approx(3.2, rel=0.03)
    assert fitted["memory"]["before 0.17"]["samplerCopies"] == pytest.approx(9.1, rel=0.03)
