"""A cluster of real nodes around the local control plane, as a context manager.

Everything it starts is killed with this process, and everything it makes (namespaces, mounts, interfaces)
goes with its processes; folders and cgroups that a killed run leaves are swept by the next one.
"""

import contextlib
import http.client
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from control_plane import ControlPlane, Settings, build_tools
from control_plane.client import Client
from control_plane.cluster import Cluster
from control_plane.processes import Process, start_process, stop_processes, wait_until_ready
from control_plane.servers import SERVICE_RANGE
from real_nodes import network
from real_nodes.cgroups import sweep_groups
from real_nodes.dns import READY_PORT, USER, grant_rights, write_corefile
from real_nodes.identities import Authority
from real_nodes.images import PAUSE, Image, write_archive
from real_nodes.node import Node, Surroundings
from real_nodes.programs import ensure_programs

SETTINGS = Settings(
    api_server_arguments=(
        "--bind-address=0.0.0.0",
        f"--advertise-address={network.GATEWAY}",
        "--kubelet-preferred-address-types=InternalIP",
        "--enable-admission-plugins=NodeRestriction",
    ),
    # Nodes of this cluster are real: the simulator must not keep a lost one's lease.
    kwok_arguments=(
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
    ),
)


DNS_START_S = 300.0


class RealCluster:
    """Nodes by name, in the order given; the control plane's servers and this process share one network."""

    def __init__(self, names: Sequence[str], *, images: Iterable[Image], mounts: Mapping[Path, str]) -> None:
        self.nodes: dict[str, Node] = {}
        self._names = tuple(names)
        self._images = tuple(images)
        self._mounts = {Path("/usr"): "/usr"} | dict(mounts)
        self._exits = contextlib.ExitStack()
        self._plane: ControlPlane | None = None
        self._dns: Process | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as exits:
            self._start(exits)
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exits.close()

    @property
    def cluster(self) -> Cluster:
        """What tests of a control plane expect."""
        if self._plane is None:
            raise RuntimeError("the cluster is not started")
        return self._plane.cluster

    @property
    def folder(self) -> Path:
        """Folder of the control plane, with one of each node in it."""
        return self.cluster.folder

    def use_services_of(self, node: Node) -> None:
        """Reach cluster IPs through this node; needed again when it goes."""
        network.reach_services_by(node.address, SERVICE_RANGE)

    def node_of(self, pod: Mapping[str, Mapping[str, str]]) -> Node:
        """The node that a pod is bound to."""
        return self.nodes[pod["spec"]["nodeName"]]

    @contextlib.contextmanager
    def silent_dns(self) -> Iterator[None]:
        """While the block runs, or until ``resume_dns``, DNS gets questions and answers none."""
        os.kill(self._dns_process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            self.resume_dns()

    def resume_dns(self) -> None:
        """Let DNS answer again."""
        os.kill(self._dns_process.pid, signal.SIGCONT)

    @property
    def _dns_process(self) -> Process:
        if self._dns is None:
            raise RuntimeError("the cluster is not started")
        return self._dns

    def _start(self, exits: contextlib.ExitStack) -> None:
        programs, tools = ensure_programs(), build_tools()
        sweep_groups()
        exits.enter_context(network.own_network())
        plane = exits.enter_context(ControlPlane(settings=SETTINGS, tools=tools))
        self._plane = plane
        port = plane.cluster.credentials.port
        authority = Authority(
            certificate=plane.folder / "pki" / "ca.crt",
            key=plane.folder / "pki" / "ca.key",
            server=f"https://{network.GATEWAY}:{port}",
        )
        api = plane.cluster.client()
        exits.callback(api.close)
        self._start_dns(exits, programs.coredns, plane.folder, authority, api)
        archives = plane.folder / "images"
        archives.mkdir()
        pause = Image(
            name=PAUSE, entry_point=("/opt/pause",), programs={"/opt/pause": programs.pause.read_bytes()}
        )
        images = (pause, *self._images)
        surroundings = Surroundings(
            programs=programs,
            authority=authority,
            proxy_kubeconfig=authority.kubeconfig(
                plane.folder / "kube-proxy", user="system:kube-proxy", group="system:kube-proxies"
            ),
            mounts=self._mounts,
            images=[write_archive(image, archives / f"{number}.tar") for number, image in enumerate(images)],
        )
        for index, name in enumerate(self._names, start=1):
            node = Node(name, index, plane.folder / name, surroundings)
            self.nodes[name] = node
            exits.callback(node.power_off)
            node.power_on()
        for node in self.nodes.values():
            node.wait_ready(api)
        self.use_services_of(next(iter(self.nodes.values())))

    def _start_dns(
        self, exits: contextlib.ExitStack, program: Path, folder: Path, authority: Authority, api: Client
    ) -> None:
        grant_rights(api)
        own = folder / "dns"
        kubeconfig = authority.kubeconfig(own, user=USER, group=USER)
        command: list[str | Path] = [program, "-conf", write_corefile(own, kubeconfig)]
        process = start_process("coredns", command, log=own / "coredns.log", keep=False)
        self._dns = process
        exits.callback(stop_processes, [process])
        wait_until_ready(process, _is_ready, timeout_s=DNS_START_S)


def _is_ready() -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", READY_PORT, timeout=2)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
