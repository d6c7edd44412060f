"""The control plane's binaries, built once and kept.

A build takes minutes, so it happens once per set of inputs: the module files, the flags and the Go version.
"""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from control_plane.toolchain import Toolchain, cache_folder, find_toolchain
from kept_folder import content_key, keep
from progress import Progress, last_lines

MODULE = Path(__file__).resolve().parent.parent
"""Folder of the Go module that pins the tools."""

BUILD_TIMEOUT_S = 3600.0


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
    inputs = (MODULE / "go.mod", MODULE / "go.sum")
    return content_key(*inputs, json.dumps([build_flags(), toolchain.version]))


def build_tools() -> Tools:
    """Return the binaries of this checkout's go.mod, building them when the cache has none.

    Raises BuildError when the compiler fails and ToolchainError when there is no Go.
    """
    toolchain = find_toolchain()
    folder = cache_folder() / cache_key(toolchain)
    tools = Tools(folder=folder / "bin")
    keep(
        folder,
        lambda partial: _build(toolchain, partial),
        Progress("control plane"),
        is_complete=lambda: not tools.missing(),
    )
    if missing := tools.missing():
        raise BuildError(f"the build left no {', '.join(missing)} in {tools.folder}")
    return tools


def _build(toolchain: Toolchain, folder: Path) -> None:
    progress, log = Progress("control plane"), folder / "build.log"
    version = kubernetes_version()
    progress.say(f"building Kubernetes {version} and its tools, once (5 to 10 minutes on 2 cores)")
    (folder / "bin").mkdir()
    command = [str(toolchain.go), "build", "-v", *build_flags(), "-o", f"{folder / 'bin'}/", "tool"]
    code = progress.run(
        command,
        f"Kubernetes {version}",
        log=log,
        timeout_s=BUILD_TIMEOUT_S,
        cwd=MODULE,
        detail=lambda: f"{_packages_so_far(log)} packages compiled or downloaded",
    )
    if code != 0:
        raise BuildError(f"go build ended with {code}:\n{last_lines(log)}")


def _packages_so_far(log: Path) -> int:
    # `go build -v` writes a line per package as it is compiled, `go: downloading` lines before that.
    return log.read_bytes().count(b"\n")
