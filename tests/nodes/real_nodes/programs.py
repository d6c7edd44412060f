"""The programs of a node: kubelet, kube-proxy and DNS from Go modules, the rest from Debian's packages.

What Kubernetes' versions tie together is built from pinned sources, like the control plane, and kept in the
cache. A container runtime is not tied to them: any of the last years serves, so the distribution's will do.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import kept_folder
from control_plane.binaries import BuildError, build_flags
from control_plane.toolchain import Toolchain, find_toolchain
from progress import Progress, last_lines

MODULE = Path(__file__).resolve().parent.parent
"""Folder of the Go module that pins kubelet and kube-proxy."""
DNS_MODULE = MODULE / "coredns"
"""CoreDNS needs other versions of what it shares with Kubernetes: in one module, all would compile anew."""
INPUTS = ("go.mod", "go.sum", "pause/main.go", "coredns/go.mod", "coredns/go.sum", "coredns/main.go")

PACKAGES = ("containerd", "runc", "containernetworking-plugins", "nftables", "iptables", "iproute2")
COMMANDS = ("containerd", "ctr", "runc", "nft", "iptables", "ip", "unshare")
NETWORK_PLUGINS = Path("/usr/lib/cni")

BUILD_TIMEOUT_S = 3600.0
APT_TIMEOUT_S = 600.0


class NodeSetupError(RuntimeError):
    """This machine cannot run nodes; the message says what is missing and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The programs that were built. Those of the packages are on PATH."""

    folder: Path

    @property
    def kubelet(self) -> Path:
        return self.folder / "kubelet"

    @property
    def kube_proxy(self) -> Path:
        return self.folder / "kube-proxy"

    @property
    def coredns(self) -> Path:
        return self.folder / "coredns"

    @property
    def pause(self) -> Path:
        return self.folder / "pause"

    def missing(self) -> tuple[str, ...]:
        """Names of programs that are not there."""
        programs = (self.kubelet, self.kube_proxy, self.coredns, self.pause)
        return tuple(path.name for path in programs if not os.access(path, os.X_OK))


def cache_folder() -> Path:
    """Folder for everything about nodes that is made once per machine."""
    return kept_folder.cache_folder("nodes")


def ensure_programs() -> Programs:
    """All programs of a node, built and installed where they are missing.

    Raises:
        NodeSetupError: this machine or user cannot run nodes, or a package could not be installed.
        BuildError: the compiler failed.
        ToolchainError: there is no Go, and none could be installed.
    """
    check_machine()
    _ensure_packages()
    toolchain = find_toolchain()
    folder = cache_folder() / _cache_key(toolchain)
    programs = Programs(folder=folder)
    kept_folder.keep(
        folder,
        lambda partial: _build(toolchain, partial),
        Progress("nodes"),
        is_complete=lambda: not programs.missing(),
    )
    if missing := programs.missing():
        raise BuildError(f"the build left no {', '.join(missing)} in {folder}")
    return programs


def check_machine() -> None:
    """Raises NodeSetupError when nodes cannot be made by this user or on this kind of machine."""
    if sys.platform != "linux":
        raise NodeSetupError("nodes are made of Linux namespaces: this needs a Linux machine")
    if os.getuid() != 0:
        raise NodeSetupError("a kubelet mounts, and makes network interfaces: this needs root")
    if not Path("/sys/fs/cgroup/memory").is_dir():
        raise NodeSetupError(
            "nodes get a cgroup each in every version 1 hierarchy, and this machine has version 2 only; "
            "boot it with systemd.unified_cgroup_hierarchy=0"
        )


def _ensure_packages() -> None:
    if _lacking() == ():
        return
    if shutil.which("apt-get") is None:
        raise NodeSetupError(
            f"missing: {', '.join(_lacking())}, and there is no apt-get to install "
            f"{', '.join(PACKAGES)}: install what your distribution calls them"
        )
    Progress("nodes").say(f"installing Debian's {', '.join(PACKAGES)}, for {', '.join(_lacking())}")
    # Somebody else on this machine may be installing as well.
    wait = f"-oDPkg::Lock::Timeout={APT_TIMEOUT_S:.0f}"
    install = ["apt-get", wait, "install", "--yes", "--quiet", "--no-install-recommends", *PACKAGES]
    problem = _apt(install)
    if problem and not (problem := _apt(["apt-get", "update", "--quiet"])):
        problem = _apt(install)
    if lacking := _lacking():
        raise NodeSetupError(f"apt-get did not bring {', '.join(lacking)}: {problem}")


def _lacking() -> tuple[str, ...]:
    commands = tuple(name for name in COMMANDS if shutil.which(name, path=search_path()) is None)
    plugins = () if (NETWORK_PLUGINS / "bridge").exists() else (str(NETWORK_PLUGINS / "bridge"),)
    return commands + plugins


def search_path() -> str:
    """PATH with the folders of system programs, which some users' PATH lacks."""
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _apt(command: list[str]) -> str:
    """Run apt-get; the end of what it said, or nothing when it succeeded."""
    variables = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=APT_TIMEOUT_S, env=variables
        )
    except subprocess.TimeoutExpired:
        return f"{' '.join(command[:2])} took more than {APT_TIMEOUT_S:.0f} s"
    return "" if done.returncode == 0 else (done.stderr or done.stdout).strip()[-600:]


def _cache_key(toolchain: Toolchain) -> str:
    inputs = (MODULE / name for name in INPUTS)
    return kept_folder.content_key(*inputs, json.dumps([build_flags(), toolchain.version]))


def _build(toolchain: Toolchain, folder: Path) -> None:
    progress, log = Progress("nodes"), folder / "build.log"
    progress.say("building kubelet, kube-proxy and CoreDNS, once (3 to 8 minutes on 2 cores)")
    for module, *what in ((MODULE, "tool", "./pause"), (DNS_MODULE, ".")):
        command = [str(toolchain.go), "build", *build_flags(), "-o", f"{folder}/", *what]
        code = progress.run(command, module.name, log=log, timeout_s=BUILD_TIMEOUT_S, cwd=module)
        if code != 0:
            raise BuildError(f"go build of {module.name} ended with {code}:\n{last_lines(log)}")
