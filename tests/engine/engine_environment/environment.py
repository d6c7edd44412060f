"""Where the engine's environment lies, and what is in it."""

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import kept_folder
from engine_environment.installation import InstallationError, install
from progress import Progress

OWN = Path(__file__).resolve().parent
INPUTS = ("requirements.txt", "cuda_stand_ins.py", "tiny_model.py")
LAYOUT = 1
"""Raised when ``installation.py`` fills the folder in another way."""


class EngineSetupError(RuntimeError):
    """The engine's environment could not be made; the message ends with the failing tool's last lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Paths of a complete environment."""

    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter that imports vLLM."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def vllm(self) -> Path:
        """The ``vllm`` command."""
        return self.folder / "venv" / "bin" / "vllm"

    @property
    def tiny_model(self) -> Path:
        """A model of a few megabytes with real weights, whose greedy answer has varied token ids."""
        return self.folder / "tiny-model"

    @property
    def cache(self) -> Path:
        """``VLLM_CACHE_ROOT``: what vLLM learns by inspecting model classes (20 s each time without it)."""
        return self.folder / "vllm-cache"

    def is_complete(self) -> bool:
        """Whether every part is there."""
        return all(path.exists() for path in (self.python, self.vllm, self.tiny_model / "expected.json"))

    def variables(self) -> dict[str, str]:
        """Environment of a process that imports vLLM: offline, silent, with this environment's caches."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        return kept | {
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(self.folder / "hf-home"),
            "NO_COLOR": "1",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "TRANSFORMERS_OFFLINE": "1",
            "VLLM_CACHE_ROOT": str(self.cache),
            "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_NO_USAGE_STATS": "1",
        }


def cache_folder() -> Path:
    """Folder of all engine environments of this machine's user."""
    return kept_folder.cache_folder("engine")


def environment() -> Environment:
    """The environment of this checkout's pins, whether it has been made yet or not."""
    machine = f"{LAYOUT} {platform.machine()} {sys.version_info[:2]} {sys.base_prefix}"
    key = kept_folder.content_key(*(OWN / name for name in INPUTS), machine)
    return Environment(folder=cache_folder() / key)


def ensure_environment() -> Environment:
    """The environment, made if it is not there: minutes and some gigabytes the first time, nothing later.

    Raises:
        EngineSetupError: a package could not be installed, or vLLM does not run from it.
    """
    found, progress = environment(), Progress("engine")
    try:
        kept_folder.keep(
            found.folder,
            lambda partial: install(partial, final=found.folder, progress=progress),
            progress,
            is_complete=found.is_complete,
        )
    except InstallationError as error:
        raise EngineSetupError(str(error)) from None
    if not found.is_complete():
        raise EngineSetupError(f"set-up ended, but {found.folder} is not complete")
    return found
