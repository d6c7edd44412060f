"""Status of an object by the library that Flux and ``helm --wait`` use, built from its Go module.

The module has nothing in common with the control plane's, and a program of half a minute's compilation should
not wait for one of ten, so it has a cache entry of its own.
"""

import json
import subprocess
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from pathlib import Path

from control_plane.binaries import BuildError
from control_plane.client import Json
from control_plane.toolchain import find_toolchain
from kept_folder import cache_folder, content_key, keep
from progress import Progress

MODULE = Path(__file__).resolve().parent
INPUTS = ("go.mod", "go.sum", "kstatus/main.go")
BUILD_TIMEOUT_S = 600.0
TIMEOUT_S = 30.0


class Status(StrEnum):
    """What the library answers (cli-utils, pkg/kstatus/status)."""

    IN_PROGRESS = "InProgress"
    FAILED = "Failed"
    CURRENT = "Current"
    TERMINATING = "Terminating"


def statuses(objects: Iterable[Json]) -> list[Status]:
    """The status of each object, in order."""
    documents = "\n".join(json.dumps(body) for body in objects)
    done = subprocess.run(
        [_program()], input=documents, capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    )
    return [Status(line.partition("\t")[0]) for line in done.stdout.splitlines()]


@cache
def _program() -> Path:
    """Path of the program, which is built when the cache has none of this content."""
    toolchain = find_toolchain()
    key = content_key(toolchain.version, *(MODULE / name for name in INPUTS))
    folder = cache_folder("gitops") / key
    keep(folder, lambda partial: _build(toolchain.go, partial), Progress("kstatus"))
    return folder / "kstatus"


def _build(go: Path, folder: Path) -> None:
    command = [go, "build", "-trimpath", "-buildvcs=false", "-o", folder / "kstatus", "./kstatus"]
    done = subprocess.run(
        command, cwd=MODULE, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_S
    )
    if done.returncode != 0:
        raise BuildError(f"go build of kstatus ended with {done.returncode}:\n{done.stderr[-2000:]}")
