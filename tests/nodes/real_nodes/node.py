"""One node: started, starved of power, cut off, healed, and given GPUs that are a number."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from control_plane.client import JSON_PATCH, Client
from control_plane.gpus import node_gpu
from control_plane.nodes import is_ready
from control_plane.processes import Process, StartError, start_process, stop_processes
from control_plane.waiting import wait_for
from real_nodes import network
from real_nodes.cgroups import group_name, make_group, remove_group
from real_nodes.configuration import RUNTIME_SOCKET, kubelet_arguments, programs_of, write_node_files
from real_nodes.identities import Authority
from real_nodes.programs import Programs, search_path

NODE_PROCESS = Path(__file__).with_name("node_process.py")
MOST_NODES = 9
READY_S = 300.0
END_S = 120.0
GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all nodes of a cluster share."""

    programs: Programs
    authority: Authority
    proxy_kubeconfig: Path
    mounts: Mapping[Path, str]
    images: Sequence[Path]


class Node:
    """A node by name; ``index`` (from 1 on) decides its addresses."""

    def __init__(self, name: str, index: int, folder: Path, surroundings: Surroundings) -> None:
        self.name = name
        self.index = index
        self.folder = folder
        self._surroundings = surroundings
        self._process: Process | None = None

    @property
    def address(self) -> str:
        return network.node_address(self.index)

    @property
    def is_on(self) -> bool:
        """Whether it has power."""
        return self._process is not None and self._process.is_running()

    def power_on(self) -> None:
        """Start it, for the first time or with the disk of before; returns before it is Ready."""
        settings = self._write_settings()
        log = self.folder / "node.log"
        variables = os.environ | {"PATH": search_path()}
        command: list[str | Path] = [sys.executable, NODE_PROCESS, "node", settings]
        process = start_process(self.name, command, log=log, keep=False, env=variables)
        self._process = process
        self._await_namespace(process)
        network.connect(self.name, self.index, process.pid)

    def power_off(self) -> None:
        """Take its power away: no process of it does anything any more, and nobody is told."""
        if self._process is None:
            return
        # Unplugged first: dying processes would otherwise close their connections in good order.
        network.disconnect(self.name)
        stop_processes([self._process], patience_s=0)
        self._process = None
        self._await_empty_group()

    def cut_off(self) -> None:
        """Cut its network: it runs on, and nobody hears of it."""
        network.partition(self.name)

    def heal(self) -> None:
        """Let it be heard again."""
        network.heal(self.name)

    def wait_ready(self, api: Client, timeout_s: float = READY_S) -> None:
        """Wait until it is Ready."""

        def ready() -> bool:
            if not self.is_on:
                log = (self.folder / "node.log").read_text(errors="replace")[-2000:]
                raise StartError(f"node {self.name} ended while starting:\n{log}")
            return api.find("nodes", self.name) is not None and is_ready(api, self.name)

        wait_for(ready, f"node {self.name} is Ready", timeout_s=timeout_s)

    def give_gpus(self, api: Client, kind: str, count: int) -> None:
        """Let it offer GPUs: a number in its status, which the kubelet keeps, and the labels of discovery."""
        labels = node_gpu(kind).labels(count)
        api.patch("nodes", self.name, {"metadata": {"labels": labels}})
        path = "/status/capacity/nvidia.com~1gpu"
        change = [{"op": "add", "path": path, "value": str(count)}]
        api.patch("nodes", self.name, change, subresource="status", content_type=JSON_PATCH)

        wait_for(lambda: self.offers_gpus(api), f"node {self.name} offers {count} GPUs", timeout_s=READY_S)

    def offers_gpus(self, api: Client) -> bool:
        """Whether its status says that there are GPUs to give."""
        return int(api.get("nodes", self.name)["status"]["allocatable"].get(GPU, 0)) > 0

    def log(self, program: str) -> str:
        """The end of a program's log."""
        path = self.folder / f"{program}.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else "(none)"

    def _write_settings(self) -> Path:
        around = self._surroundings
        self.folder.mkdir(parents=True, exist_ok=True)
        files = write_node_files(
            self.folder,
            name=self.name,
            index=self.index,
            mounts=around.mounts,
            proxy_kubeconfig=around.proxy_kubeconfig,
        )
        kubeconfig = around.authority.kubeconfig(
            self.folder / "pki", user=f"system:node:{self.name}", group="system:nodes"
        )
        kubelet = kubelet_arguments(files, name=self.name, index=self.index, kubeconfig=kubeconfig)
        others = (index for index in range(1, MOST_NODES + 1) if index != self.index)
        settings = {
            "name": self.name,
            "groups": [str(file) for file in make_group(group_name(self.name))],
            "folder": str(self.folder),
            "address": f"{self.address}/24",
            "gateway": network.GATEWAY,
            "routes": {network.pod_subnet(other): network.node_address(other) for other in others},
            "socket": RUNTIME_SOCKET,
            "images": [str(path) for path in around.images],
            "programs": programs_of(
                files, [str(around.programs.kubelet), *kubelet], around.programs.kube_proxy
            ),
        }
        # Leases of addresses would survive the pods that a power loss has ended.
        subprocess.run(["rm", "-rf", str(self.folder / "addresses")], check=True, timeout=30)
        path = self.folder / "settings.json"
        path.write_text(json.dumps(settings, indent=1))
        return path

    def _await_namespace(self, process: Process) -> None:
        own = Path("/proc/thread-self/ns/net").readlink()
        deadline = time.monotonic() + READY_S
        while True:
            if not process.is_running():
                raise StartError(f"node {self.name} ended while starting:\n{process.log_tail()}")
            if Path(f"/proc/{process.pid}/ns/net").readlink() != own:
                return
            if time.monotonic() > deadline:
                raise StartError(f"node {self.name} has no network of its own:\n{process.log_tail()}")
            time.sleep(0.02)

    def _await_empty_group(self) -> None:
        group = group_name(self.name)
        deadline = time.monotonic() + END_S
        while not remove_group(group):
            if time.monotonic() > deadline:
                raise RuntimeError(f"processes of node {self.name} outlive it, in cgroup {group}")
            time.sleep(0.05)
