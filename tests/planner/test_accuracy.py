"""The accuracy tool as people run it, and the promises that the planner makes about itself."""

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


def test_the_one_start_up_that_is_not_foreseen_is_named(found):
    # gpt-oss-20b on one GPU used 1.07 GiB after sizing its cache that no line of its log explains.
    assert found["capacity"]["wrongVerdicts"] == ["kv040"]


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
    assert "skipped for gpu: 1 (kv098)" in text
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
    assert part["rows"] == {
        "given": 3,
        "scored": 1,
        "skipped": 2,
        "skippedForColumn": {"gpu": ["strange"], "outcome": ["nothing"]},
    }
    assert part["shippedConstants"]["fits"] == {"right": 1, "of": 1, "recall": 1.0}


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
