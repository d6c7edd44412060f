"""``plan --model-dir``: a folder's config and the headers of its files, whatever of them is there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from small_llama import ENDS, HIDDEN, INNER, config, layer, safetensors

Run = Callable[..., Any]

HARDWARE = ("--gpu", "L40S", "--gpus-per-node", "4", "--nodes", "1")
LAYERS = 2
CONFIG = config(LAYERS)
WHOLE = {**layer(0), **layer(1), **ENDS}
INDEX = {"metadata": {"total_size": 0}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}


def folder(root: Path, files: dict[str, bytes | dict[str, Any]]) -> str:
    place = root / "my-model"
    place.mkdir()
    for name, content in {"config.json": CONFIG, **files}.items():
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (place / name).write_bytes(data)
    return str(place)


def planned(run: Run, *arguments: str) -> dict[str, Any]:
    answer = run("plan", *arguments, *HARDWARE, "-o", "json")
    assert answer.err == ""
    found: dict[str, Any] = json.loads(answer.out)
    return found


def test_same_tensors_as_the_config_says_make_the_same_plan(run: Run, tmp_path: Path) -> None:
    path = folder(tmp_path, {"model.safetensors": safetensors(WHOLE)})

    assert planned(run, "--model-dir", path) == planned(run, "--config", path)
    assert planned(run, "--model-dir", path)["model"] == "my-model"


def test_32_bit_tensors_are_cast_while_loading(run: Run, tmp_path: Path) -> None:
    wide = {name: ("F32", shape) for name, (_, shape) in WHOLE.items()}
    path = folder(tmp_path, {"model.safetensors": safetensors(wide)})

    assert planned(run, "--model-dir", path)["weightsBytes"] == planned(run, "--config", path)["weightsBytes"]


def test_weights_on_each_gpu_follow_the_tensors(run: Run, tmp_path: Path) -> None:
    wide = {**layer(0, inner=INNER * 3 // 2), **layer(1, inner=INNER * 3 // 2), **ENDS}
    path = folder(tmp_path, {"model.safetensors": safetensors(wide)})
    pins = ("--tensor", "4", "--pipeline", "1")

    measured, computed = (planned(run, source, path, *pins) for source in ("--model-dir", "--config"))

    more = LAYERS * 3 * HIDDEN * INNER // 2 * 2 // 4
    found = measured["stages"][0]["weightsBytes"] - computed["stages"][0]["weightsBytes"]
    assert found == pytest.approx(more, rel=0.01)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        pytest.param(
            {"model.safetensors": safetensors(WHOLE)},
            "Weights are those of 21 tensors in 1 file",
            id="one file",
        ),
        pytest.param(
            {
                "model.safetensors.index.json": INDEX,
                "one.safetensors": safetensors(layer(0)),
                "two.safetensors": safetensors({**layer(1), **ENDS}),
                "consolidated.safetensors": safetensors(WHOLE),
            },
            "Weights are those of 21 tensors in 2 files",
            id="files of an index",
        ),
        pytest.param(
            {
                "a-1.safetensors": safetensors(layer(0)),
                "a-2.safetensors": safetensors({**layer(1), **ENDS}),
                "consolidated.safetensors": safetensors(WHOLE),
            },
            "Weights are those of 21 tensors in 2 files",
            id="files without an index, and the same weights once more",
        ),
        pytest.param(
            {"model.safetensors.index.json": {**INDEX, "metadata": {"total_size": 19 * 2**20}}},
            "Weights are scaled to the 0.0 GiB that the index",
            id="an index alone",
        ),
        pytest.param({"pytorch_model.bin": b"x"}, "it has no safetensors files", id="another format"),
    ],
)
def test_what_is_there_is_told(
    files: dict[str, bytes | dict[str, Any]], said: str, run: Run, tmp_path: Path
) -> None:
    answer = run("plan", "--model-dir", folder(tmp_path, files), *HARDWARE)

    assert answer.code == 0
    assert said in " ".join(answer.out.split())
    assert "copy it into spec.model.config" in " ".join(answer.out.split())


def test_what_modelopt_wrote_beside_the_config_counts(run: Run, tmp_path: Path) -> None:
    quantization = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    path = folder(tmp_path, {"hf_quant_config.json": quantization})

    found = planned(run, "--model-dir", path)

    assert (found["quantization"], found["kvCacheDtype"][:3]) == ("modelopt", "fp8")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        pytest.param(
            {"model.safetensors": b"\xff" * 64}, "it is no safetensors file", id="an absurd length of header"
        ),
        pytest.param(
            {"model.safetensors": (6).to_bytes(8, "little") + b"{nope}"},
            "it is no safetensors file",
            id="no JSON",
        ),
        pytest.param({"model.safetensors": b""}, "it is no safetensors file", id="empty file"),
        pytest.param(
            {"model.safetensors": (8).to_bytes(8, "little") + b'{"a": 1}'},
            "its entry 'a' has no type and shape",
            id="an entry that is none",
        ),
        pytest.param(
            {"model.safetensors.index.json": {"weight_map": {"a": "../../etc/passwd"}}},
            "has no weight_map of files beside it",
            id="a file outside of the folder",
        ),
        pytest.param(
            {"model.safetensors.index.json": {"weight_map": {"a": 1}}},
            "has no weight_map of files beside it",
            id="an index that is none",
        ),
        pytest.param(
            {"model.safetensors": safetensors({**layer(0, inner=64 * INNER), **layer(1), **ENDS})},
            "times what the config says",
            id="weights of another model",
        ),
    ],
)
def test_refusals_are_one_line(
    files: dict[str, bytes | dict[str, Any]], said: str, run: Run, tmp_path: Path
) -> None:
    answer = run("plan", "--model-dir", folder(tmp_path, files), *HARDWARE)

    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("--model-dir", "nowhere"), "nowhere is no folder", id="no folder"),
        pytest.param(("--model-dir", ".", "--config", "."), "give one of them", id="two configs"),
        pytest.param(
            ("--model", "Qwen/Qwen3-8B", "--offline"), "--offline says how to use --hub", id="offline"
        ),
    ],
)
def test_options_that_do_not_go(arguments: tuple[str, ...], said: str, run: Run) -> None:
    answer = run("plan", *arguments, *HARDWARE)

    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


def test_render_sees_what_the_operator_sees(run: Run, tmp_path: Path) -> None:
    path = folder(tmp_path, {"model.safetensors": safetensors(WHOLE)})
    file = tmp_path / "resource.yaml"
    file.write_text(
        "apiVersion: shardwright.dev/v1alpha1\nkind: ModelDeployment\nmetadata: {name: small}\n"
        "spec: {model: {name: me/small}}\n",
        encoding="utf-8",
    )

    by_folder = run("render", "-f", str(file), "--model-dir", path, *HARDWARE)
    by_config = run("render", "-f", str(file), "--config", path, *HARDWARE)

    assert by_folder.code == 0
    assert by_folder.out == by_config.out
