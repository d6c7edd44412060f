"""Where the engine's environment lies, and how two test runs share one set-up.

The folder's name is a hash of everything that decides what is in it: a changed pin makes a new folder beside
the old one. It is filled aside and renamed when complete, so that an interrupted set-up leaves no half
environment; a lock file lets a second run wait for the first.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine_environment.installation import InstallationError, install
from engine_environment.progress import Progress

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
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "shardwright" / "engine"


def environment() -> Environment:
    """The environment of this checkout's pins, whether it has been made yet or not."""
    digest = hashlib.sha256()
    for name in INPUTS:
        digest.update((OWN / name).read_bytes())
    digest.update(f"{LAYOUT} {platform.machine()} {sys.version_info[:2]} {sys.base_prefix}".encode())
    return Environment(folder=cache_folder() / digest.hexdigest()[:16])


def ensure_environment() -> Environment:
    """The environment, made if it is not there: minutes and some gigabytes the first time, nothing later.

    Raises:
        EngineSetupError: a package could not be installed, or vLLM does not run from it.
    """
    found = environment()
    if found.is_complete():
        return found
    cache_folder().mkdir(parents=True, exist_ok=True)
    with _lock():
        if not found.is_complete():
            _make(found)
    return found


def _make(wanted: Environment) -> None:
    _sweep_partial()
    partial = wanted.folder.with_name(f"{wanted.folder.name}.partial-{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        install(partial, final=wanted.folder, progress=Progress("engine"))
        shutil.rmtree(wanted.folder, ignore_errors=True)
        partial.rename(wanted.folder)
    except InstallationError as error:
        raise EngineSetupError(str(error)) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    if not wanted.is_complete():
        raise EngineSetupError(f"set-up ended, but {wanted.folder} is not complete")


def _sweep_partial() -> None:
    # Under the lock nobody else is filling a folder: what lies there was left by a run that was killed.
    for left in cache_folder().glob("*.partial-*"):
        shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _lock() -> Iterator[None]:
    """One set-up at a time on this machine; the kernel drops the lock when its holder dies."""
    with (cache_folder() / "set-up.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            Progress("engine").say("another process sets the engine up, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
