"""Folders of control planes, and what is in them for another process to find.

A folder holds everything of one control plane, and a state file with its processes. That is how a kept
cluster is stopped later, and how the remains of a crashed test run are swept before the next one.
"""

import contextlib
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from control_plane.processes import Process, stop_processes
from control_plane.toolchain import cache_folder

STATE_FILE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Who started a control plane and which processes make it up."""

    owner: Process
    keep: bool
    kubeconfig: Path
    processes: tuple[Process, ...]

    def is_running(self) -> bool:
        """Tell whether all servers run."""
        return bool(self.processes) and all(process.is_running() for process in self.processes)


def new_folder() -> Path:
    """Make an empty folder for an unkept control plane, after sweeping those of crashed owners."""
    runs = cache_folder() / "run"
    runs.mkdir(parents=True, exist_ok=True)
    sweep(runs)
    return Path(tempfile.mkdtemp(prefix="plane-", dir=runs))


def sweep(runs: Path) -> None:
    """Stop and remove unkept control planes whose owner is gone."""
    for folder in runs.iterdir():
        state = read_state(folder)
        if state is not None and not state.keep and not state.owner.is_running():
            stop_folder(folder)


def stop_folder(folder: Path) -> bool:
    """Stop the control plane of a folder and remove the folder; False when there is none."""
    state = read_state(folder)
    if state is None:
        return False
    stop_processes(state.processes)
    shutil.rmtree(folder, ignore_errors=True)
    return True


def read_state(folder: Path) -> State | None:
    """Read a folder's state file; None when there is none."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        record = json.loads((folder / STATE_FILE).read_text())
        return State(
            owner=Process.from_json(record["owner"]),
            keep=record["keep"],
            kubeconfig=Path(record["kubeconfig"]),
            processes=tuple(Process.from_json(entry) for entry in record["processes"]),
        )
    return None


def write_state(folder: Path, state: State) -> None:
    """Write the state file whole: a reader never sees half of it."""
    record = {
        "owner": state.owner.as_json(),
        "keep": state.keep,
        "kubeconfig": str(state.kubeconfig),
        "processes": [process.as_json() for process in state.processes],
    }
    partial = folder / f"{STATE_FILE}.partial"
    partial.write_text(json.dumps(record, indent=1))
    partial.rename(folder / STATE_FILE)
