"""The tiny models that real engines serve, and what they answer in one process.

Made once and kept beside the programs of the nodes: an answer takes a minute to get.
"""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_environment import Environment
from kept_folder import content_key, keep
from progress import Progress
from real_nodes.programs import cache_folder

OWN = Path(__file__).resolve().parent
PLUGIN = OWN.parent / "engine_plugin"
INPUTS = (OWN / "tiny_moe.py", OWN / "one_process.py")
PROMPTS = (
    (298, 291, 261, 297, 292, 288),
    (5, 6, 7, 8, 9, 10, 11, 12, 13),
    (301, 44, 120),
    (77, 300, 15, 222, 490, 3, 64, 128, 256, 511),
)
STEP_TIMEOUT_S = 600.0
CPU_VARIABLES = {
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""What vLLM's CPU build needs besides: a thread for each rank, and no compiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model folder, and the answer to each of ``PROMPTS``."""

    name: str
    folder: Path
    answers: tuple[tuple[int, ...], ...]

    @property
    def config(self) -> dict[str, Any]:
        """Its config.json."""
        found: dict[str, Any] = json.loads((self.folder / "config.json").read_text())
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """All models in a folder that stands for a shared file system, and vLLM's cache about them."""

    folder: Path
    dense: Model
    moe: Model
    cache: Path


def ensure_models(engine: Environment) -> Models:
    """The models with their answers, made where they are missing."""
    key = content_key(engine.folder.name, json.dumps(PROMPTS), *INPUTS, digits=12)
    root = cache_folder() / f"models-{key}"
    keep(root, lambda partial: _make(engine, partial), Progress("nodes"))
    folder = root / "models"
    return Models(
        folder=folder,
        dense=_read(folder, "tiny-dense"),
        moe=_read(folder, "tiny-moe"),
        cache=root / "vllm-cache",
    )


def _read(folder: Path, name: str) -> Model:
    answers = json.loads((folder.parent / f"{name}.answers.json").read_text())
    return Model(name=name, folder=folder / name, answers=tuple(tuple(ids) for ids in answers))


def _make(engine: Environment, root: Path) -> None:
    folder, cache = root / "models", root / "vllm-cache"
    folder.mkdir()
    cache.mkdir()
    shutil.copytree(engine.tiny_model, folder / "tiny-dense")
    _run(engine, cache, OWN / "tiny_moe.py", folder / "tiny-moe", folder / "tiny-dense")
    prompts = root / "prompts.json"
    prompts.write_text(json.dumps(PROMPTS))
    for name in ("tiny-dense", "tiny-moe"):
        _run(engine, cache, OWN / "one_process.py", folder / name, prompts, root / f"{name}.answers.json")
    expected = json.loads((engine.tiny_model / "expected.json").read_text())
    first = json.loads((root / "tiny-dense.answers.json").read_text())[0]
    if list(PROMPTS[0]) == expected["promptIds"] and first != expected["tokenIds"][: len(first)]:
        raise RuntimeError(f"vLLM answers {first}, transformers {expected['tokenIds']}")
    for path in cache.rglob("*"):
        # vLLM keeps them for itself; the pods' user is another.
        path.chmod(0o755 if path.is_dir() else 0o644)


def _run(engine: Environment, cache: Path, script: Path, *arguments: Path) -> None:
    print(f"nodes: {script.stem} for {arguments[0].name}", file=sys.stderr, flush=True)
    variables = engine.variables() | CPU_VARIABLES
    variables |= {"VLLM_CACHE_ROOT": str(cache), "PYTHONPATH": str(PLUGIN), "VLLM_HOST_IP": "127.0.0.1"}
    done = subprocess.run(
        [engine.python, script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=STEP_TIMEOUT_S,
        env=variables,
        cwd=cache,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{script.name} ended with {done.returncode}:\n{done.stderr[-3000:]}")
