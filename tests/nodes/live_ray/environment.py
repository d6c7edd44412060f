"""Ray in a virtual environment of its own, installed by hash into the cache."""

import fcntl
import hashlib
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from engine_environment.progress import Progress
from real_nodes.programs import cache_folder

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
INSTALL_TIMEOUT_S = 1800.0


class RaySetupError(RuntimeError):
    """A step failed; the message says which and ends with its last lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayEnvironment:
    """Where it lies on this machine."""

    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter that imports Ray."""
        return self.folder / "venv" / "bin" / "python"


def ensure_ray() -> RayEnvironment:
    """The environment, made if it is not there: half a minute and 0.3 GB.

    Raises:
        RaySetupError: a package could not be installed.
    """
    digest = hashlib.sha256(REQUIREMENTS.read_bytes())
    digest.update(f"{platform.machine()} {sys.version_info[:2]} {sys.base_prefix}".encode())
    found = RayEnvironment(folder=cache_folder() / f"ray-{digest.hexdigest()[:12]}")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.folder.exists():
            _make(found.folder)
    return found


def _make(folder: Path) -> None:
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    progress, log = Progress("ray"), partial / "setup.log"
    venv = partial / "venv"
    pip = [venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for what, command in (
        ("virtual environment", [sys.executable, "-m", "venv", venv]),
        ("Ray", [*pip, "--no-input", "--no-deps", "--require-hashes", "-r", REQUIREMENTS]),
    ):
        if (code := progress.run(command, what, log=log, timeout_s=INSTALL_TIMEOUT_S)) != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise RaySetupError(f"{what}: ended with {code}\n{tail}")
    partial.rename(folder)
