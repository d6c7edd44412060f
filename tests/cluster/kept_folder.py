"""A folder that is made once per machine and kept in the cache: for what takes minutes to build or install.

Its name is a hash of everything that decides what is in it: a changed pin makes a new folder beside the old
one. It is filled aside and renamed when complete, so that an interrupted run leaves no half folder. Under a
lock a second run waits for the first.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from progress import Progress

LOCK = "build.lock"


def cache_folder(name: str) -> Path:
    """Where this machine's user keeps folders of one kind."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "shardwright" / name


def content_key(*parts: Path | str, digits: int = 16) -> str:
    """Hash over everything that decides what a folder holds: contents of files, and texts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.read_bytes() if isinstance(part, Path) else part.encode())
    return digest.hexdigest()[:digits]


def keep(
    folder: Path,
    fill: Callable[[Path], None],
    progress: Progress,
    *,
    is_complete: Callable[[], bool] | None = None,
) -> None:
    """Make the folder, unless it is there and complete. What ``fill`` raises is passed on, and nothing kept.

    ``fill`` is given an empty folder, which is renamed when it returns.
    """
    is_there = folder.exists if is_complete is None else is_complete
    if is_there():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / LOCK, progress):
        if is_there():
            return
        _sweep(folder.parent)
        partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            fill(partial)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """One at a time on this machine: the kernel drops the lock when its holder dies."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say("another process is at it, waiting for that")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sweep(folder: Path) -> None:
    """Remove what runs have left that were killed."""
    for left in folder.glob("*.partial-*"):
        if not Path("/proc", left.name.rpartition("-")[2]).exists():
            shutil.rmtree(left, ignore_errors=True)
