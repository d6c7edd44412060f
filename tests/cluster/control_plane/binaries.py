"""The control plane's binaries, built once and kept.

A build takes minutes, so it happens once per set of inputs: the cache's key is a hash of the module files,
the flags and the Go version, and a changed pin makes a new folder beside the old one. Two test runs that
start at once share one build through a lock file; a build that was interrupted leaves no half folder.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from control_plane.toolchain import Toolchain, cache_folder, find_toolchain

MODULE = Path(__file__).resolve().parent.parent
"""Folder of the Go module that pins the tools."""

PROGRESS_EVERY_S = 10.0


class BuildError(RuntimeError):
    """The Go build failed; the message ends with the compiler's last lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Paths of the built programs."""

    folder: Path

    @property
    def etcd(self) -> Path:
        # `go build tool` names a program after its last path element, which for etcd is `server`.
        return self.folder / "server"

    @property
    def api_server(self) -> Path:
        return self.folder / "kube-apiserver"

    @property
    def controller_manager(self) -> Path:
        return self.folder / "kube-controller-manager"

    @property
    def scheduler(self) -> Path:
        return self.folder / "kube-scheduler"

    @property
    def kubectl(self) -> Path:
        return self.folder / "kubectl"

    @property
    def helm(self) -> Path:
        return self.folder / "helm"

    @property
    def kwok(self) -> Path:
        return self.folder / "kwok"

    def missing(self) -> tuple[str, ...]:
        """Names of programs that are not there."""
        programs = (
            self.etcd,
            self.api_server,
            self.controller_manager,
            self.scheduler,
            self.kubectl,
            self.helm,
            self.kwok,
        )
        return tuple(path.name for path in programs if not os.access(path, os.X_OK))


def kubernetes_version() -> str:
    """Version of Kubernetes that go.mod pins, for example ``v1.36.3``."""
    match = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise BuildError("tests/cluster/go.mod does not require k8s.io/kubernetes")
    return match[1]


def build_flags() -> tuple[str, ...]:
    """Flags of ``go build``; without the version stamped in, the API server would say v0.0.0-master."""
    version = kubernetes_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    package = "k8s.io/component-base/version"
    stamp = f"-X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    return ("-trimpath", "-buildvcs=false", f"-ldflags=-s -w {stamp}")


def cache_key(toolchain: Toolchain) -> str:
    """Hash over everything that decides what the binaries are."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    digest.update(json.dumps([build_flags(), toolchain.version]).encode())
    return digest.hexdigest()[:16]


def build_tools() -> Tools:
    """Return the binaries of this checkout's go.mod, building them when the cache has none.

    Raises BuildError when the compiler fails and ToolchainError when there is no Go.
    """
    toolchain = find_toolchain()
    folder = cache_folder() / cache_key(toolchain)
    tools = Tools(folder=folder / "bin")
    if not tools.missing():
        return tools
    cache_folder().mkdir(parents=True, exist_ok=True)
    with _build_lock():
        if tools.missing():
            _build(toolchain, folder)
    if missing := tools.missing():
        raise BuildError(f"the build left no {', '.join(missing)} in {tools.folder}")
    return tools


@contextmanager
def _build_lock() -> Iterator[None]:
    """One build at a time on this machine: the kernel drops the lock when its holder dies."""
    with (cache_folder() / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process builds the control plane, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(toolchain: Toolchain, folder: Path) -> None:
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "bin").mkdir(parents=True)
    log = partial / "build.log"
    try:
        _say(f"building Kubernetes {kubernetes_version()} and its tools, once (5 to 10 minutes on 2 cores)")
        command = [str(toolchain.go), "build", "-v", *build_flags(), "-o", f"{partial / 'bin'}/", "tool"]
        with log.open("wb") as output:
            builder = subprocess.Popen(command, cwd=MODULE, stdout=output, stderr=subprocess.STDOUT)
            try:
                _show_progress(builder, log)
            except BaseException:
                builder.terminate()
                builder.wait()
                raise
        if builder.returncode != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise BuildError(f"go build ended with {builder.returncode}:\n{tail}")
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _show_progress(builder: subprocess.Popen[bytes], log: Path) -> None:
    """Print elapsed time and the count of compiled packages until the build ends."""
    started = time.monotonic()
    next_line_at = started + PROGRESS_EVERY_S
    while builder.poll() is None:
        time.sleep(0.2)
        if time.monotonic() >= next_line_at:
            next_line_at += PROGRESS_EVERY_S
            _say(f"{_elapsed(started)}  {_compiled_packages(log)} packages compiled or downloaded")
    _say(f"{_elapsed(started)}  done" if builder.returncode == 0 else f"{_elapsed(started)}  failed")


def _compiled_packages(log: Path) -> int:
    # `go build -v` writes one line per package as it is compiled, `go: downloading` lines before that.
    return log.read_bytes().count(b"\n")


def _elapsed(started: float) -> str:
    seconds = int(time.monotonic() - started)
    return f"{seconds // 60}:{seconds % 60:02d}"


def _say(text: str) -> None:
    print(f"control plane: {text}", file=sys.stderr, flush=True)
