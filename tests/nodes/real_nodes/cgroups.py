"""A cgroup of its own for each node, in every hierarchy of version 1, below the one that this process is in.

A kubelet arranges its pods in the root of what it sees. A node sees its own group as that root, so that pods
count against whoever runs the tests, and two nodes do not share one tree.
"""

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PREFIX = "shardwright-node-"
_COPIED = ("cpuset.cpus", "cpuset.mems")
"""A new group has no CPUs, and takes no process before it has some."""


def group_name(node: str) -> str:
    """Name of a node's group, with the pid of whoever runs it, so that two test runs do not meet."""
    return f"{PREFIX}{os.getpid()}-{node}"


def make_group(name: str) -> list[Path]:
    """Make the group in every hierarchy; a process moves there by writing its pid to the files returned."""
    made = []
    for parent in _own_groups():
        group = parent / name
        group.mkdir(exist_ok=True)
        for file in _COPIED:
            if (parent / file).exists():
                (group / file).write_text((parent / file).read_text())
        made.append(group / "cgroup.procs")
    return made


def remove_group(name: str) -> bool:
    """Remove the group with all below it; False while a process is left somewhere in there."""
    left = [parent for parent in _own_groups() if not _remove_tree(parent / name)]
    return not left


def sweep_groups() -> None:
    """Remove the groups of test runs that were killed."""
    for parent in _own_groups():
        for group in parent.glob(f"{PREFIX}*"):
            owner = group.name.removeprefix(PREFIX).partition("-")[0]
            if not Path("/proc", owner).exists():
                _remove_tree(group)


def _remove_tree(group: Path) -> bool:
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            Path(folder).rmdir()
        except OSError:
            return False
    return True


def _own_groups() -> Iterator[Path]:
    """Folders of the groups that this process is in, one for each hierarchy of version 1."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        folder = ROOT / controllers.removeprefix("name=") / path.lstrip("/")
        if controllers and folder.is_dir():
            yield folder
