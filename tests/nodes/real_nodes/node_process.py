"""Process 1 of a node, and how it comes to be; a program of its own that needs nothing but Python.

First it moves into the node's cgroup and becomes ``unshare``, which starts it again inside of new namespaces.
There it mounts what a machine has, starts container runtime, kubelet and proxy, and waits. When it ends, for
whatever reason, the kernel ends everything in its namespace, and mounts and interfaces go with them.

A trial does the same as far as it needs rights, and starts nothing.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

INSIDE = {"node": "inside", "trial": "trial-inside"}
"""The second half by the first."""
NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc")
STARTED_WITHIN_S = 240.0


def main(arguments: list[str]) -> int:
    """Run one of the two halves; the second ends with the first server that ends."""
    half, settings_file = arguments
    settings = json.loads(Path(settings_file).read_text())
    if half in INSIDE:
        _enter(settings["groups"], INSIDE[half], settings_file)
    _mount()
    if half == INSIDE["trial"]:
        _try_layers(Path(settings["folder"]))
        _try_interfaces()
        return 0
    socket.sethostname(settings["name"])
    _set_up_network(settings)
    return _serve(settings)


def _enter(groups: list[str], half: str, settings_file: str) -> None:
    for group in groups:
        Path(group).write_text(str(os.getpid()))
    again = [sys.executable, "-S", __file__, half, settings_file]
    # The cgroup namespace takes the group of this moment as its root.
    command = ["unshare", *NAMESPACES, "--cgroup", "--fork", "--kill-child", *again]
    os.execvp(command[0], command)  # noqa: S606 - there is nothing for a shell to do


def _mount() -> None:
    _run("mount", "--make-rprivate", "/")
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = {
        controllers.removeprefix("name="): controllers
        for _, controllers, _ in (line.split(":", 2) for line in lines)
        if controllers
    }
    _run("mount", "-t", "proc", "proc", "/proc")
    _run("umount", "-l", "/sys/fs/cgroup")
    _run("mount", "-t", "sysfs", "sysfs", "/sys")
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "cgroup", "/sys/fs/cgroup")
    for folder, controllers in own.items():
        path = Path("/sys/fs/cgroup", folder)
        path.mkdir()
        _run("mount", "-t", "cgroup", "-o", controllers, "cgroup", str(path))
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    # The kubelet's mounts have to reach containers, which the machine's own root may forbid.
    _run("mount", "--make-rshared", "/")


def _set_up_network(settings: dict[str, Any]) -> None:
    deadline = time.monotonic() + STARTED_WITHIN_S
    while not Path("/sys/class/net/eth0").exists():
        if time.monotonic() > deadline:
            raise TimeoutError("nobody has plugged eth0 in")
        time.sleep(0.02)
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", settings["address"], "dev", "eth0")
    _run("ip", "link", "set", "eth0", "up")
    _run("ip", "route", "add", "default", "via", settings["gateway"])
    for subnet, via in settings["routes"].items():
        _run("ip", "route", "replace", subnet, "via", via)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    filtered = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if filtered.exists():
        # Else a pod's answer to a neighbour that called its Service would go past the proxy's rules.
        filtered.write_text("1")


def _try_layers(folder: Path) -> None:
    """Mount one folder over another, as a container runtime does for each container."""
    lower, upper, work, merged = (folder / name for name in ("lower", "upper", "work", "merged"))
    for path in (lower, upper, work, merged):
        path.mkdir()
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    _run("mount", "-t", "overlay", "-o", options, "overlay", str(merged))
    _run("umount", str(merged))


def _try_interfaces() -> None:
    """Make a bridge with a port; where the command is missing, set-up will bring it."""
    if shutil.which("ip") is None:
        return
    _run("ip", "link", "add", "trial", "type", "bridge")
    _run("ip", "link", "add", "trial-port", "type", "veth", "peer", "name", "trial-peer")
    _run("ip", "link", "set", "trial-port", "master", "trial")


def _serve(settings: dict[str, Any]) -> int:
    folder = Path(settings["folder"])
    runtime, *others = settings["programs"]
    servers = [_start(runtime, folder)]
    ctr = ["ctr", "--address", settings["socket"], "--namespace", "k8s.io"]
    deadline = time.monotonic() + STARTED_WITHIN_S
    while subprocess.run([*ctr, "version"], capture_output=True, check=False).returncode != 0:
        if time.monotonic() > deadline or servers[0].poll() is not None:
            print("the container runtime does not come up", flush=True)
            return 1
        time.sleep(0.1)
    for archive in settings["images"]:
        _run(*ctr, "images", "import", archive)
    servers += [_start(program, folder) for program in others]
    names = {server.pid: program[0] for server, program in zip(servers, settings["programs"], strict=True)}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("the servers run", flush=True)
    while True:
        # All that loses its parent becomes a child of process 1, above all the shims of containers.
        ended, status = os.wait()
        if ended in names:
            print(f"{names[ended]} ended with {status}", flush=True)
            return 1


def _start(command: list[str], folder: Path) -> "subprocess.Popen[bytes]":
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("ab") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=STARTED_WITHIN_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
