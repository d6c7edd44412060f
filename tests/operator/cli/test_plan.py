"""``plan``: the shape of status.plan, exit codes, what-if options, several documents, and what it costs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright_operator.api.status import status_schema
from shardwright_planner import Plan

Run = Callable[..., Any]

EXAMPLES = Path(__file__).parents[3] / "examples"
BIG = str(EXAMPLES / "llama-3.1-405b.yaml")
ASKED = (
    "--model",
    "meta-llama/Llama-3.1-405B-Instruct",
    "--gpu",
    "H100-SXM-80GB",
    "--gpus-per-node",
    "8",
    "--nodes",
    "2",
    "--input-tokens",
    "2048",
    "--output-tokens",
    "256",
    "--concurrency",
    "32",
)


def sizes(plan: dict[str, Any]) -> tuple[int, int, int]:
    return plan["tensorParallel"], plan["pipelineParallel"], plan["nodes"]


def test_options_and_file_give_the_same_plan(run: Run) -> None:
    by_file = json.loads(run("plan", "-f", BIG, "-o", "json").out)
    by_options = json.loads(
        run("plan", *ASKED, "--max-model-len", "8192", "--tpot", "150ms", "--ttft", "30s", "-o", "json").out
    )

    assert by_file == by_options
    assert sizes(by_file) == (8, 2, 2)


def test_json_and_yaml_have_the_shape_of_the_status(run: Run) -> None:
    as_json = json.loads(run("plan", "-f", BIG, "-o", "json").out)
    as_yaml = yaml.safe_load(run("plan", "-f", BIG, "-o", "yaml").out)

    assert as_json == as_yaml
    assert Plan.model_validate(as_json).to_wire() == as_json
    assert set(as_json) <= set(status_schema()["properties"]["plan"]["properties"])


def test_explanation_is_the_default(run: Run) -> None:
    answer = run("plan", *ASKED)

    assert answer.code == 0
    assert "TP8 x PP2 on 2 nodes of H100-SXM-80GB" in answer.out
    assert "\x1b[" not in answer.out


def test_colour_on_demand(run: Run) -> None:
    assert "\x1b[" in run("plan", *ASKED, "--color", "always").out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param((), 0, id="fits"),
        pytest.param(("--nodes", "1"), 1, id="does not fit"),
        pytest.param(("--tpot", "1ms"), 0, id="misses, best effort"),
        pytest.param(("--tpot", "1ms", "--policy", "Require"), 1, id="misses what is required"),
    ],
)
@pytest.mark.parametrize("output", ["text", "json"])
def test_exit_code(arguments: tuple[str, ...], code: int, output: str, run: Run) -> None:
    answer = run("plan", "-f", BIG, *arguments, "-o", output)

    assert answer.code == code
    assert answer.err == ""
    assert answer.out


def test_several_documents_are_all_planned(run: Run, tmp_path: Path) -> None:
    small = (EXAMPLES / "llama-3.1-8b.yaml").read_text(encoding="utf-8")
    file = tmp_path / "both.yaml"
    file.write_text(f"{Path(BIG).read_text(encoding='utf-8')}\n---\n{small}", encoding="utf-8")

    as_text = run("plan", "-f", str(file))
    as_yaml = list(yaml.safe_load_all(run("plan", "-f", str(file), "-o", "yaml").out))

    assert [sizes(plan) for plan in as_yaml] == [(8, 2, 2), (1, 1, 1)]
    assert as_text.out.index("llama-405b") < as_text.out.index("llama-8b")


def test_several_documents_are_one_array_as_json(run: Run, tmp_path: Path) -> None:
    small = (EXAMPLES / "llama-3.1-8b.yaml").read_text(encoding="utf-8")
    file = tmp_path / "both.yaml"
    file.write_text(f"{Path(BIG).read_text(encoding='utf-8')}\n---\n{small}", encoding="utf-8")

    answer = run("plan", "-f", str(file), "-o", "json")

    assert [sizes(plan) for plan in json.loads(answer.out)] == [(8, 2, 2), (1, 1, 1)]


def test_one_bad_plan_decides_the_exit_code(run: Run, tmp_path: Path) -> None:
    big = Path(BIG).read_text(encoding="utf-8")
    small = (EXAMPLES / "llama-3.1-8b.yaml").read_text(encoding="utf-8")
    file = tmp_path / "both.yaml"
    file.write_text(f"{big.replace('maxNodes: 2', 'maxNodes: 1')}\n---\n{small}", encoding="utf-8")

    assert run("plan", "-f", str(file)).code == 1


def test_other_kinds_in_the_file_are_passed_over(run: Run) -> None:
    answer = run("plan", "-f", str(EXAMPLES / "llama-3.3-70b-from-claim.yaml"), "-o", "json")

    assert sizes(json.loads(answer.out)) == (4, 1, 1)


def test_list_of_kubectl_get(run: Run, tmp_path: Path) -> None:
    document = yaml.safe_load(Path(BIG).read_text(encoding="utf-8"))
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [document]}), encoding="utf-8")

    assert run("plan", "-f", str(file)).code == 0


def test_config_names_the_model_by_its_folder(run: Run, tmp_path: Path) -> None:
    document = yaml.safe_load((EXAMPLES / "own-model.yaml").read_text(encoding="utf-8"))
    folder = tmp_path / "assistant-13b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(document["spec"]["model"]["config"]), encoding="utf-8")
    hardware = ("--gpu", "L4", "--gpus-per-node", "4", "--nodes", "1")

    by_file = json.loads(run("plan", "--config", str(folder / "config.json"), *hardware, "-o", "json").out)
    by_folder = json.loads(run("plan", "--config", str(folder), *hardware, "-o", "json").out)

    assert by_file == by_folder
    assert by_file["model"] == "assistant-13b"


def _process(*arguments: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    command = ["-m", "shardwright_operator.cli", *arguments] if code is None else ["-c", code, *arguments]
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, timeout=60)


def test_no_cluster_client_is_imported() -> None:
    code = (
        "import sys\n"
        "from shardwright_operator.cli import main\n"
        "code = main(sys.argv[1:])\n"
        "print(code, [m for m in ('kopf', 'kubernetes', 'aiohttp', 'prometheus_client') if m in sys.modules],"
        " file=sys.stderr)\n"
    )

    assert _process("plan", *ASKED, code=code).stderr == "0 []\n"


def test_closed_pipe_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    with subprocess.Popen(
        [sys.executable, "-m", "shardwright_operator.cli", "crd"], stdout=write, stderr=subprocess.PIPE
    ) as process:
        os.close(write)
        _, errors = process.communicate(timeout=60)

    assert (process.returncode, errors) == (0, b"")
