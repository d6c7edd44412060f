"""How the engine gets into pods whose image is empty, and how to find its processes from outside."""

import os
import re
import signal
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from control_plane.client import Json
from engine_environment import Environment
from live_engine.models import PLUGIN, Models
from real_nodes.images import SYSTEM_PATH, Image

ENGINE = "/opt/engine"
PLUGIN_FOLDER = "/opt/engine-plugin"
CACHE_FOLDER = "/opt/engine-cache"
BIN = "/opt/engine-bin"
DEFAULT_IMAGE = "vllm/vllm-openai:v0.32.0"

_VLLM = f"""\
#!{ENGINE}/venv/bin/python
import sys
from vllm.entrypoints.cli.main import main
if __name__ == "__main__":
    sys.exit(main())
"""
_HUB = f"""\
#!{ENGINE}/venv/bin/python
import sys
from huggingface_hub.cli.hf import main
if __name__ == "__main__":
    sys.exit(main())
"""
"""The environment's own scripts name their interpreter by the folder in the cache, which pods do not have."""


def engine_image(name: str = DEFAULT_IMAGE) -> Image:
    """The engine's image as the operator names it, with ``vllm``, ``hf`` and ``python3`` on its PATH."""
    return Image(
        name=name,
        environment={"PATH": f"{BIN}:{ENGINE}/venv/bin:{SYSTEM_PATH}", "LANG": "C.UTF-8"},
        entry_point=("vllm", "serve"),
        programs={f"{BIN}/vllm": _VLLM.encode(), f"{BIN}/hf": _HUB.encode()},
    )


def mounts(engine: Environment, models: Models) -> dict[Path, str]:
    """Folders of this machine that make the engine's image more than a name."""
    found = {
        engine.folder: ENGINE,
        PLUGIN: PLUGIN_FOLDER,
        models.cache: CACHE_FOLDER,
    }
    prefix = Path(sys.base_prefix)
    if not prefix.is_relative_to("/usr"):
        found[prefix] = str(prefix)
    return found


def processes(pod: Json) -> Mapping[int, str]:
    """Processes of a pod's engine container by pid, with their command lines."""
    (status,) = pod["status"]["containerStatuses"]
    return _in_groups([str(status["containerID"]).rpartition("/")[2]])


def is_starting(pod: Json) -> bool:
    """Whether its launcher has started the engine."""
    statuses = pod["status"].get("containerStatuses") or ()
    if not statuses or "running" not in statuses[0]["state"]:
        return False
    return any(" serve " in command and "launcher" not in command for command in processes(pod).values())


def remaining(uids: Collection[str]) -> dict[int, str]:
    """Processes of any container of these pods, with their command lines."""
    return _in_groups([f"pod{uid}" for uid in uids])


def main_process(pod: Json) -> int:
    """Process 1 of the container, as this machine numbers it."""
    return next(pid for pid in processes(pod) if _inner_pid(pid) == 1)


def rank_processes(pod: Json) -> list[int]:
    """The processes that hold a rank, in whichever container of the pod: vLLM names them so."""
    found = remaining([pod["metadata"]["uid"]])
    return [pid for pid, command in found.items() if re.search(r"VLLM::Worker|VllmWorker", command)]


def user_of(pid: int) -> int:
    """Number of the user that a process runs as."""
    found = re.search(r"^Uid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    if found is None:
        raise ProcessLookupError(pid)
    return int(found[1])


def kill(pid: int) -> None:
    """End a process as the kernel does when memory is short."""
    os.kill(pid, signal.SIGKILL)


def _in_groups(names: Collection[str]) -> dict[int, str]:
    found: dict[int, str] = {}
    for folder in sorted(Path("/proc").iterdir(), key=lambda path: _number(path.name)):
        if not folder.name.isdigit():
            continue
        try:
            group = (folder / "cgroup").read_text()
            if any(name in group for name in names):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def _inner_pid(pid: int) -> int:
    """Its number in the innermost namespace; 0 when it has just ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^NSpid:.*?(\d+)$", status, re.MULTILINE)
    return int(found[1]) if found else 0


def _number(name: str) -> int:
    return int(name) if name.isdigit() else 0
