"""``plan --hub`` against a Hub on this machine: what is asked, what is kept, a line for each refusal."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from small_llama import ENDS, HIDDEN, INNER, config, layer, safetensors
from tiny_hub import HubModel, TinyHub, serving

pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")

Run = Callable[..., Any]

HARDWARE = ("--gpu", "L40S", "--gpus-per-node", "4", "--nodes", "1")
NAME = "somebody/small"
TOKEN = "hf_" + 30 * "x"
LAYERS = 4
CONFIG = config(LAYERS)


def shard(*layers: int, ends: bool = False, wide: int = 1) -> bytes:
    """A file with these layers; ``wide`` makes their MLPs larger than the config says."""
    found = dict(ENDS) if ends else {}
    for index in layers:
        found |= layer(index, inner=INNER * wide)
    return safetensors(found)


def sharded(wide: int = 1) -> dict[str, bytes]:
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    index = {"metadata": {"total_size": 1}, "weight_map": {"a": names[0], "b": names[1]}}
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
        names[0]: shard(0, 1, ends=True, wide=wide),
        names[1]: shard(2, 3, wide=wide),
    }


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[TinyHub]:
    """A Hub, the environment that names it, and caches of its own."""
    with serving() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.endpoint)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr("huggingface_hub.file_download.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield found


def asked(hub: TinyHub) -> set[str]:
    return {path.rsplit("/", 1)[-1] for _, path, _ in hub.requests}


def test_config_and_headers_make_the_plan(hub: TinyHub, run: Run) -> None:
    hub.models[NAME] = HubModel(files=sharded())

    answer = run("plan", "--model", NAME, "--hub", *HARDWARE)

    assert (answer.code, answer.err) == (0, "")
    assert f"{NAME}: TP1 on 1 node" in answer.out
    assert "Weights are those of 39 tensors in 2 files of somebody/small" in " ".join(answer.out.split())
    assert not [path for _, path, _ in hub.requests if path.endswith((".bin", ".pt"))]


def test_weights_are_those_of_the_tensors_and_not_of_the_config(hub: TinyHub, run: Run) -> None:
    hub.models[NAME] = HubModel(files=sharded())
    hub.models["somebody/wide"] = HubModel(files=sharded(wide=2))

    plain, wide = (
        json.loads(run("plan", "--model", name, "--hub", *HARDWARE, "-o", "json").out)
        for name in (NAME, "somebody/wide")
    )

    assert wide["weightsBytes"] - plain["weightsBytes"] == pytest.approx(
        LAYERS * 3 * HIDDEN * INNER * 2, rel=0.01
    )


def test_what_is_kept_serves_offline(hub: TinyHub, run: Run) -> None:
    hub.models[NAME] = HubModel(files=sharded())
    arguments = ("plan", "--model", NAME, "--hub", *HARDWARE, "-o", "json")
    online = run(*arguments)
    hub.models.clear()
    hub.requests.clear()

    assert run(*arguments, "--offline").out == online.out
    assert hub.requests == []


def test_a_commit_that_is_kept_is_not_asked_for_again(hub: TinyHub, run: Run) -> None:
    hub.models[NAME] = HubModel(files=sharded())
    arguments = ("plan", "--model", NAME, "--hub", *HARDWARE, "-o", "json")
    first = run(*arguments)
    hub.requests.clear()

    assert run(*arguments).out == first.out
    assert asked(hub) == {"main"}


def test_a_new_commit_is_read_anew(hub: TinyHub, run: Run) -> None:
    hub.models[NAME] = HubModel(files=sharded())
    arguments = ("plan", "--model", NAME, "--hub", *HARDWARE, "-o", "json")
    first = run(*arguments)
    hub.models[NAME] = HubModel(files=sharded(wide=2), commit="b" * 40)

    assert run(*arguments).out != first.out


def test_a_damaged_cache_is_as_good_as_none(hub: TinyHub, run: Run, tmp_path: Path) -> None:
    hub.models[NAME] = HubModel(files=sharded())
    arguments = ("plan", "--model", NAME, "--hub", *HARDWARE, "-o", "json")
    first = run(*arguments)
    (kept,) = (tmp_path / "cache" / "shardwright" / "hub").iterdir()
    kept.write_bytes(b"\x1f\x8b torn")

    assert run(*arguments).out == first.out


def test_one_file_without_an_index(hub: TinyHub, run: Run) -> None:
    files = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": shard(0, 1, 2, 3, ends=True)}
    hub.models[NAME] = HubModel(files=files)

    assert "in 1 file of" in " ".join(run("plan", "--model", NAME, "--hub", *HARDWARE).out.split())


def test_no_safetensors_leaves_the_config(hub: TinyHub, run: Run) -> None:
    hub.models[NAME] = HubModel(files={"config.json": json.dumps(CONFIG).encode(), "pytorch_model.bin": b""})

    answer = run("plan", "--model", NAME, "--hub", *HARDWARE)

    assert answer.code == 0
    assert "it has no safetensors files" in " ".join(answer.out.split())


def test_what_modelopt_wrote_beside_the_config_counts(hub: TinyHub, run: Run) -> None:
    quantization = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    files = {"config.json": CONFIG, "hf_quant_config.json": quantization}
    hub.models[NAME] = HubModel(files={name: json.dumps(data).encode() for name, data in files.items()})

    answer = run("plan", "--model", NAME, "--hub", "--gpu", "H100", *HARDWARE[2:], "-o", "json")

    assert json.loads(answer.out)["quantization"] == "modelopt"


def test_the_token_of_the_environment_opens_a_gated_model(
    hub: TinyHub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.models[NAME] = HubModel(files=sharded(), token=TOKEN, gate="GatedRepo")
    monkeypatch.setenv("HF_TOKEN", TOKEN)

    answer = run("plan", "--model", NAME, "--hub", *HARDWARE)

    assert answer.code == 0
    assert {authorization for _, _, authorization in hub.requests} == {f"Bearer {TOKEN}"}
    assert TOKEN not in answer.out + answer.err


def test_catalogue_models_ask_nobody(hub: TinyHub, run: Run) -> None:
    assert run("plan", "--model", "Qwen/Qwen3-8B", "--hub", *HARDWARE).code == 0
    assert hub.requests == []


def test_nobody_is_asked_without_the_option(hub: TinyHub, run: Run) -> None:
    hub.models[NAME] = HubModel(files=sharded())

    answer = run("plan", "--model", NAME, *HARDWARE)

    assert answer.code == 2
    assert "--hub" in answer.err
    assert hub.requests == []


def manifest(folder: Path, of_the_model: str) -> Path:
    """A file with a resource whose model says this of itself besides its name."""
    file = folder / "resource.yaml"
    file.write_text(
        "apiVersion: shardwright.dev/v1alpha1\nkind: ModelDeployment\nmetadata: {name: small}\nspec:\n"
        f"  model: {{name: {NAME}, {of_the_model}}}\n",
        encoding="utf-8",
    )
    return file


def test_an_endpoint_in_a_manifest_gets_no_token(
    hub: TinyHub, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.models[NAME] = HubModel(files=sharded())
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with serving() as other:
        file = manifest(tmp_path, f"source: {{huggingFace: {{endpoint: '{other.endpoint}'}}}}")

        answer = run("plan", "-f", str(file), "--hub", *HARDWARE)

        assert other.requests == []
    assert answer.code in {0, 2}


GATED = HubModel(files={}, token=TOKEN, gate="GatedRepo")
BROKEN = HubModel(files={"config.json": json.dumps(CONFIG).encode(), "model.safetensors": b"\x01\x00\x00"})
OTHERS = HubModel(
    files={"config.json": json.dumps({**CONFIG, "num_hidden_layers": 2, "hidden_size": 4096}).encode()}
    | {"model.safetensors": shard(0, 1, ends=True)}
)


@pytest.mark.parametrize(
    ("model", "arguments", "said"),
    [
        pytest.param(GATED, (), "somebody/small on {endpoint} is gated: accept its terms", id="gated"),
        pytest.param(
            None, (), "there is no model somebody/small on {endpoint}, or it is private", id="missing"
        ),
        pytest.param(
            HubModel(files={}), (), "has no config.json; is it a model for transformers?", id="no config"
        ),
        pytest.param(None, ("--offline",), "nothing is kept of somebody/small", id="nothing kept"),
        pytest.param(None, ("--model", "small"), "'small' is no Hub id, which has the form", id="no owner"),
        pytest.param(None, ("--model", "a/b/c"), "'a/b/c' is no Hub id, which has the form", id="a path"),
        pytest.param(BROKEN, (), "the weights of somebody/small on {endpoint} cannot be read", id="broken"),
        pytest.param(
            OTHERS, (), "times what the config says; give the config.json and", id="others' weights"
        ),
    ],
)
def test_refusals_are_one_line(
    model: HubModel | None, arguments: tuple[str, ...], said: str, hub: TinyHub, run: Run
) -> None:
    if model is not None:
        hub.models[NAME] = model

    answer = run("plan", "--model", NAME, "--hub", *HARDWARE, *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert said.format(endpoint=hub.endpoint) in answer.err
    assert answer.err.count("\n") == 1


def test_a_reference_with_slashes(hub: TinyHub, run: Run, tmp_path: Path) -> None:
    hub.models[NAME] = HubModel(files=sharded(), revisions=("main", "refs/pr/3"))
    file = manifest(tmp_path, "revision: refs/pr/3")

    answer = run("plan", "-f", str(file), "--hub", *HARDWARE)

    assert (answer.code, answer.err) == (0, "")
    assert any(path.endswith("/revision/refs%2Fpr%2F3") for _, path, _ in hub.requests)


def test_a_revision_that_is_not_there(hub: TinyHub, run: Run, tmp_path: Path) -> None:
    hub.models[NAME] = HubModel(files=sharded())
    file = tmp_path / "resource.yaml"
    file.write_text(
        "apiVersion: shardwright.dev/v1alpha1\nkind: ModelDeployment\nmetadata: {name: small}\nspec:\n"
        f"  model: {{name: {NAME}, revision: v2}}\n",
        encoding="utf-8",
    )

    answer = run("plan", "-f", str(file), "--hub", *HARDWARE)

    assert answer.err == f"shardwright: {NAME} has no revision 'v2'.\n"


def test_no_connection(hub: TinyHub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as gone:
        monkeypatch.setenv("HF_ENDPOINT", gone.endpoint)

    answer = run("plan", "--model", NAME, "--hub", *HARDWARE)

    assert (answer.code, answer.out) == (2, "")
    assert f"cannot ask {gone.endpoint} about {NAME}" in answer.err
    assert answer.err.count("\n") == 1


def test_the_command_line_works_without_the_extra() -> None:
    code = (
        "import sys\n"
        "sys.modules['huggingface_hub'] = None\n"
        "from shardwright_operator.cli import main\n"
        f"hardware = {HARDWARE!r}\n"
        "assert main(['plan', '--model', 'Qwen/Qwen3-8B', '-o', 'json', *hardware]) == 0\n"
        "sys.exit(main(['plan', '--model', 'somebody/small', '--hub', *hardware]))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 2
    assert "huggingface_hub is not installed; install shardwright with its extra" in done.stderr
    assert done.stderr.count("\n") == 1
