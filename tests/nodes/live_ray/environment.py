"""Ray in a virtual environment of its own, installed by hash into the cache."""

import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from kept_folder import content_key, keep
from progress import Progress, last_lines
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
    machine = f"{platform.machine()} {sys.version_info[:2]} {sys.base_prefix}"
    found = RayEnvironment(folder=cache_folder() / f"ray-{content_key(REQUIREMENTS, machine, digits=12)}")
    keep(found.folder, _make, Progress("ray"))
    return found


def _make(folder: Path) -> None:
    progress, log = Progress("ray"), folder / "setup.log"
    venv = folder / "venv"
    pip = [venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for what, command in (
        ("virtual environment", [sys.executable, "-m", "venv", venv]),
        ("Ray", [*pip, "--no-input", "--no-deps", "--require-hashes", "-r", REQUIREMENTS]),
    ):
        if (code := progress.run(command, what, log=log, timeout_s=INSTALL_TIMEOUT_S)) != 0:
            raise RaySetupError(f"{what}: ended with {code}\n{last_lines(log)}")
