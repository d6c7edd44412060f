"""Bad input ends with exit code 2 and one line on stderr that says what to do, never with a traceback."""

import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

HARDWARE = ("--gpu", "H100-SXM-80GB", "--gpus-per-node", "8", "--nodes", "1")
MODEL = ("--model", "meta-llama/Llama-3.1-8B-Instruct")
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
GOOD = """\
apiVersion: shardwright.dev/v1alpha1
kind: ModelDeployment
metadata: {name: llama}
spec:
  model: {name: meta-llama/Llama-3.1-8B-Instruct}
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(
            (), "nothing to plan: give -f FILE, --model NAME, --config FILE, or --model-dir DIR", id="nothing"
        ),
        pytest.param(
            ("-f", "one.yaml", "--filename", "two.yaml"),
            "--filename is given twice; put several resources into one file, or pipe them",
            id="two files, of which the first was left out",
        ),
        pytest.param(MODEL, "--gpu, --gpus-per-node and --nodes must be given", id="no hardware"),
        pytest.param((*MODEL, *HARDWARE[:2]), "--gpus-per-node and --nodes must be given", id="part of it"),
        pytest.param(
            ("--model", "nobody/knows", *HARDWARE),
            "--model is 'nobody/knows', but the planner has no facts about this model; give --model a Hub id "
            "of its catalogue, or add one of: --model-dir DIR (a local checkpoint), --hub",
            id="unknown model: what the command line can do comes first",
        ),
        pytest.param(
            ("--model", "Qwen/Qwen3-32", *HARDWARE),
            "give --model a Hub id of its catalogue (Qwen/Qwen3-32B?), or add",
            id="mistyped model",
        ),
        pytest.param(
            ("--model", str(Path(__file__).parent)[1:], *HARDWARE),
            "--hub (ask the Hugging Face Hub for this id)",
            id="no folder from here",
        ),
        pytest.param(
            (*MODEL, "--gpu", "H1000", *HARDWARE[2:]),
            "--gpu is 'H1000', but the known GPUs are H100-SXM-80GB",
            id="unknown GPU",
        ),
        pytest.param(
            (*MODEL, *HARDWARE, "--tpot", "150"), "--tpot is '150', but it must be a duration", id="no unit"
        ),
        pytest.param(
            (*MODEL, *HARDWARE, "--concurrency", "0"),
            "--concurrency is 0, but it must be at least 1",
            id="concurrency of nothing",
        ),
        pytest.param(
            (*MODEL, *HARDWARE, "--concurrency", "many"),
            "argument --concurrency: invalid int value: 'many'; see shardwright plan --help.",
            id="no number",
        ),
        pytest.param(
            (*MODEL, *HARDWARE, "--tensor", "3"), "--tensor is 3, but", id="pin that does not divide"
        ),
        pytest.param(
            (*MODEL, *HARDWARE, "--tensor", "16"), "--tensor is 16, but a node has 8 GPUs", id="pin too large"
        ),
        pytest.param(
            (*MODEL, *HARDWARE, "--colour"), "unrecognized arguments: --colour", id="unknown option"
        ),
        pytest.param((*MODEL, "--gpus", "8"), "unrecognized arguments: --gpus 8", id="no abbreviations"),
        pytest.param(("-f", "missing.yaml"), "cannot read missing.yaml: No such file", id="missing file"),
        pytest.param(("-f", "/"), "cannot read /: Is a directory", id="folder"),
        pytest.param(
            ("--config", "missing.json", *HARDWARE), "cannot read missing.json", id="missing config"
        ),
    ],
)
def test_plan_refuses(arguments: tuple[str, ...], said: str, run: Run) -> None:
    answer = run("plan", *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("shardwright: ")
    assert said in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "FILE is empty; give a ModelDeployment", id="empty"),
        pytest.param("a: [1", "FILE is not YAML: line", id="no YAML"),
        pytest.param("just words", "FILE has only a text; give a ModelDeployment", id="words"),
        pytest.param("kind: Service\n---\nkind: Secret\n", "FILE has only Secret, Service", id="other kinds"),
        pytest.param(
            GOOD.replace("v1alpha1", "v1"), "FILE: llama: apiVersion is 'shardwright.dev/v1'", id="version"
        ),
        pytest.param(
            GOOD.replace("llama}", "'vllm'}"), "FILE: vllm: metadata.name is 'vllm'", id="reserved name"
        ),
        pytest.param(
            GOOD + "  slos: {}\n",
            "FILE: llama: spec.slos is an object, but there is no such field; write slo",
            id="unknown field",
        ),
        pytest.param(
            GOOD,
            "spec.hardware.gpu, spec.hardware.gpusPerNode and spec.hardware.maxNodes must be given",
            id="no hardware",
        ),
        pytest.param(
            GOOD + "---\n" + GOOD.replace("{name: llama}", "{name: second}").replace("model:", "modl:"),
            "FILE: second: ",
            id="mistake in the second document",
        ),
    ],
)
def test_plan_refuses_file(text: str, said: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "given.yaml"
    file.write_text(text, encoding="utf-8")

    answer = run("plan", "-f", str(file))

    assert (answer.code, answer.out) == (2, "")
    assert said.replace("FILE", str(file)) in answer.err
    assert answer.err.count("\n") == 1


def test_folder_that_is_given_as_a_name(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llama").mkdir()
    monkeypatch.chdir(tmp_path)

    answer = run("plan", "--model", "llama", *HARDWARE)

    assert answer.err == (
        "shardwright: --model is 'llama', but the planner has no facts about this model; it is a folder "
        "here: give it as --model-dir llama.\n"
    )


def test_model_of_a_file_is_mended_in_the_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "given.yaml"
    file.write_text(GOOD.replace("meta-llama/Llama-3.1-8B-Instruct", "nobody/knows"), encoding="utf-8")

    assert (
        "copy the model's config.json into spec.model.config" in run("plan", "-f", str(file), *HARDWARE).err
    )


def test_option_beside_a_file_is_blamed_by_its_name(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "given.yaml"
    file.write_text(GOOD, encoding="utf-8")

    answer = run("plan", "-f", str(file), *HARDWARE, "--ttft", "soon")

    assert answer.err.startswith("shardwright: --ttft is 'soon', but it must be a duration")


def test_format_of_a_checkpoint_is_not_blamed_on_an_option_that_nobody_gave(run: Run, tmp_path: Path) -> None:
    config = {**LLAMA, "quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")

    answer = run("plan", "--config", str(folder), *HARDWARE)

    assert answer.err == (
        "shardwright: --model is 'llama', but its checkpoint is quantized, and vLLM 0.32 has no quantization "
        "bitsandbytes; use another checkpoint of the model, or another version of the engine.\n"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("{", "is not JSON", id="no JSON"),
        pytest.param("[]", "holds a list and no object", id="list"),
        pytest.param("{}", "spec.model.config", id="empty"),
        pytest.param(json.dumps({"hidden_size": 64}), "spec.model.config", id="part of a config"),
    ],
)
def test_bad_config(content: str, said: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(content, encoding="utf-8")

    answer = run("plan", "--config", str(file), *HARDWARE)

    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_binary_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "given.yaml"
    file.write_bytes(b"\xff\xfe\x00")

    assert "it is no text in UTF-8" in run("plan", "-f", str(file)).err


def test_standard_input_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("kind: Pod\n"))

    assert run("plan", "-f", "-").err == (
        "shardwright: standard input has only Pod; give a ModelDeployment of shardwright.dev/v1alpha1.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("plna",), "there is no command 'plna'; did you mean plan?", id="close"),
        pytest.param(
            ("apply",), "the commands are plan, explain, render, diff, ledger, crd, operator.", id="not close"
        ),
        pytest.param(("render",), "a manifest must be given with -f", id="render without a file"),
        pytest.param(("operator", "--workers", "many"), "--workers", id="operator's own settings"),
    ],
)
def test_other_refusals(arguments: tuple[str, ...], said: str, run: Run) -> None:
    answer = run(*arguments)

    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1


BOMB = ", ".join(f"&{into} [{', '.join([f'*{of}'] * 8)}]" for of, into in itertools.pairwise("abcdefghi"))


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        pytest.param("2024-13-45", "a value that YAML cannot read: month must be in 1..12", id="no date"),
        pytest.param('!!bool "x"', "a value that YAML cannot read: 'x'", id="no boolean"),
        pytest.param("9" * 5000, "a value that YAML cannot read: Exceeds the limit", id="too many digits"),
        pytest.param("&a [*a]", "expands to more than", id="contains itself"),
        pytest.param(
            f"[&a [1, 1, 1, 1, 1, 1, 1, 1], {BOMB}]",
            "expands to more than",
            id="aliases of aliases",
        ),
    ],
)
def test_yaml_that_cannot_be_used(replicas: str, said: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(f"{GOOD}  replicas: {replicas}\n")

    result = run("plan", "-f", str(file))

    assert (result.code, result.err.count("\n")) == (2, 1)
    assert said in result.err


MERGES = "\n".join(
    f"x{number}: &x{number} {{<<: [*x{number - 1}, *x{number - 1}, *x{number - 1}], k{number}: 1}}"
    for number in range(1, 30)
)


def test_merges_of_merges_cost_nothing(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(f"x0: &x0 {{a: 1}}\n{MERGES}\n")

    answer = run("plan", "-f", str(file))

    assert answer.err == (
        f"shardwright: {file} has only an object without a kind; give a ModelDeployment of "
        "shardwright.dev/v1alpha1.\n"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param('{"a":' * 100_000, "nests deeper than any model's file does.", id="levels"),
        pytest.param('{"a": ' + "9" * 5000 + "}", "not JSON: Exceeds the limit", id="digits"),
        pytest.param('{"_name_or_path": "a/\\ud800"}', "but it must be a text", id="half a sign"),
        pytest.param("{} {}", "is not JSON: Extra data", id="two"),
    ],
)
def test_a_config_that_cannot_be_used(text: str, said: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)

    answer = run("plan", "--config", str(file), "--gpu", "H100", "--gpus-per-node", "8", "--nodes", "1")

    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert said in answer.err
