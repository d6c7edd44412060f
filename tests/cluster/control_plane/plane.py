"""One control plane: its folder, its servers, their flags and their life.

Servers start in the order of need (etcd, API server, then the three that talk to it) and are stopped all at
once, because nothing of a test cluster is worth an orderly end. Everything lies in one folder with a state
file, so that another process can find and stop a cluster that was kept or whose owner crashed.
"""

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from control_plane.binaries import MODULE, Tools, build_tools
from control_plane.certificates import Certificates, make_certificates
from control_plane.client import Client
from control_plane.cluster import Cluster
from control_plane.credentials import Credentials, write_kubeconfig
from control_plane.folders import State, new_folder, read_state, write_state
from control_plane.ports import reserved_ports
from control_plane.processes import (
    Process,
    StartError,
    release_processes,
    start_process,
    stop_processes,
    this_process,
    wait_until_ready,
)
from control_plane.servers import (
    Ports,
    accepts,
    answers,
    api_server_arguments,
    controller_manager_arguments,
    etcd_arguments,
    is_healthy,
)

STAGES = MODULE / "stages"

USERS = {
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    "kwok": "system:masters",
}
"""Identities with a static token, and their group. kwok has its own, so that the audit log tells it apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a benchmark or a test may want different; the defaults suit both."""

    requests_per_second: int = 1000
    """Client-side rate of controller-manager and scheduler; client-go's own 20 would be what is measured."""
    request_burst: int = 2000
    concurrent_statefulset_syncs: int = 20
    api_server_arguments: tuple[str, ...] = ()
    controller_manager_arguments: tuple[str, ...] = ()
    scheduler_arguments: tuple[str, ...] = ()
    kwok_arguments: tuple[str, ...] = ()
    stages: tuple[Path, ...] = ()
    """Further files of kwok Stages."""


class ControlPlane:
    """A Kubernetes control plane with simulated nodes on loopback ports.

    Use it as a context manager, or call ``start`` and ``stop``. With ``keep`` the servers outlive this
    process; without it the kernel kills them when the thread that called ``start`` ends.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Settings | None = None,
        tools: Tools | None = None,
        keep: bool = False,
    ) -> None:
        self.folder = folder or new_folder()
        self.settings = settings or Settings()
        self.processes: tuple[Process, ...] = ()
        self._tools = tools
        self._keep = keep
        self._tokens = {user: secrets.token_hex(16) for user in USERS}
        self._cluster: Cluster | None = None
        self._ports: Ports | None = None
        self._commands: dict[str, tuple[Path, tuple[str, ...]]] = {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def cluster(self) -> Cluster:
        """The running cluster as tests see it."""
        if self._cluster is None:
            raise RuntimeError("the control plane is not started")
        return self._cluster

    @property
    def kubeconfig(self) -> Path:
        return self.cluster.kubeconfig

    @property
    def token(self) -> str:
        """Token of the administrator."""
        return self._tokens["admin"]

    @property
    def etcd_port(self) -> int:
        """Loopback port of etcd, for those who want to see each write to it."""
        if self._ports is None:
            raise RuntimeError("the control plane is not started")
        return self._ports.etcd

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"

    def kubeconfig_for(self, token: str, *, user: str = "token", namespace: str = "default") -> Path:
        """Write a kubeconfig for the owner of a token and return its path."""
        return self.cluster.kubeconfig_for(token, user=user, namespace=namespace)

    def start(self) -> Self:
        """Start all servers and return when pods can be created and scheduled.

        Builds the programs when the cache has none. Raises StartError with the end of a log.
        """
        tools = self._tools or build_tools()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if read_state(self.folder) is not None:
            raise StartError(f"{self.folder} holds a control plane already; stop it first")
        certificates = make_certificates(self.folder / "pki")
        (self.folder / "tokens.csv").write_text(
            "".join(f'{self._tokens[user]},{user},{user},"{group}"\n' for user, group in USERS.items())
        )
        try:
            with reserved_ports(6) as numbers:
                self._start_servers(tools, certificates, Ports(*numbers))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop all servers and remove the folder; does nothing when they are gone already."""
        stop_processes(self.processes)
        self.processes = ()
        self._cluster = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self, name: str, *, down_s: float = 0.0, patience_s: float = 0.5) -> None:
        """End one server, and start it with the same flags after so many seconds.

        It is asked to end, and killed after its patience. The API server is awaited; what the others need to
        be of use again, their users see. Call it from the thread that called ``start``.
        """
        old = self._process(name)
        stop_processes((old,), patience_s=patience_s)
        self.processes = tuple(process for process in self.processes if process is not old)
        time.sleep(down_s)
        program, arguments = self._commands[name]
        client = self.cluster.client()
        try:
            probe = (lambda: answers(client, "/readyz")) if name == "kube-apiserver" else None
            self._run(name, program, *arguments, probe=probe)
        finally:
            client.close()

    @contextlib.contextmanager
    def behind_all_watches(self) -> Iterator[Client]:
        """Inside the block the API server is down; the client is one of a second server on the same store.

        What is done by it nobody is told of, not later either: the cache from which the first one serves
        watches begins anew, and whoever comes back with an older version has to list what is there by then.
        Call it from the thread that called ``start``.
        """
        program, arguments = self._commands["kube-apiserver"]
        with reserved_ports(1) as (port,):
            own = (f"--secure-port={port}", f"--audit-log-path={self.folder / 'second-audit.log'}")
            name, client = (
                "second-apiserver",
                Client(self.cluster.credentials.at(f"https://127.0.0.1:{port}")),
            )
            self._run(name, program, *arguments, *own, probe=lambda: answers(client, "/readyz"))
        first, second = self._process("kube-apiserver"), self._process(name)
        try:
            stop_processes((first,))
            yield client
        finally:
            client.close()
            stop_processes((second,))
            self.processes = tuple(process for process in self.processes if process is not second)
            del self._commands[name]
            self.restart("kube-apiserver")

    def revive(self) -> tuple[str, ...]:
        """Start again what has ended by itself, as a node does with its static pods; returns the names.

        A scheduler ends when an answer to it was lost ("cache is corrupted"), and a controller-manager does
        when it finds no API server for long.
        """
        ended = tuple(process.name for process in self.processes if not process.is_running())
        for name in ended:
            self.restart(name)
        return ended

    def release(self) -> None:
        """Leave the servers running when this process ends (only with ``keep``)."""
        release_processes(self.processes)

    def _start_servers(self, tools: Tools, certificates: Certificates, ports: Ports) -> None:
        self._ports = ports
        credentials = Credentials(
            server=f"https://127.0.0.1:{ports.api_server}",
            authority=certificates.authority.read_bytes(),
            token=self.token,
        )
        kubeconfig = write_kubeconfig(self.folder / "admin.kubeconfig", credentials, user="admin")
        self._run("etcd", tools.etcd, *etcd_arguments(self.folder, ports), probe=lambda: accepts(ports.etcd))
        client = Client(credentials)
        try:
            arguments = (
                *api_server_arguments(self.folder, certificates, ports),
                *self.settings.api_server_arguments,
            )
            self._run(
                "kube-apiserver", tools.api_server, *arguments, probe=lambda: answers(client, "/readyz")
            )
            self._start_controllers(tools, certificates, credentials, ports)
            # Pods are refused until the controller-manager has made their namespace's ServiceAccount.
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            wait_until_ready(self._process("kube-controller-manager"), lambda: answers(client, account))
            scheduler = self._process("kube-scheduler")
            wait_until_ready(scheduler, lambda: is_healthy(ports.scheduler, tls=True))
            wait_until_ready(self._process("kwok"), lambda: is_healthy(ports.kwok, tls=False))
        finally:
            client.close()
        self._cluster = Cluster(
            kubeconfig=kubeconfig,
            credentials=credentials,
            kubectl_path=tools.kubectl,
            helm_path=tools.helm,
            folder=self.folder,
            audit_log=self.audit_log,
            simulated=True,
        )
        self._write_state()

    def _start_controllers(
        self, tools: Tools, certificates: Certificates, credentials: Credentials, ports: Ports
    ) -> None:
        settings = self.settings
        rate = (
            f"--kube-api-qps={settings.requests_per_second}",
            f"--kube-api-burst={settings.request_burst}",
        )
        manager = (
            f"--kubeconfig={self._kubeconfig_of('system:kube-controller-manager', credentials)}",
            f"--secure-port={ports.controller_manager}",
            *controller_manager_arguments(self.folder, certificates),
            f"--concurrent-statefulset-syncs={settings.concurrent_statefulset_syncs}",
            *rate,
            *settings.controller_manager_arguments,
        )
        self._run("kube-controller-manager", tools.controller_manager, *manager)
        scheduler = (
            f"--kubeconfig={self._kubeconfig_of('system:kube-scheduler', credentials)}",
            f"--secure-port={ports.scheduler}",
            *("--bind-address=127.0.0.1", "--leader-elect=false", f"--cert-dir={self.folder / 'pki'}"),
            *rate,
            *settings.scheduler_arguments,
        )
        self._run("kube-scheduler", tools.scheduler, *scheduler)
        stages = (*sorted(STAGES.glob("*.yaml")), *settings.stages)
        simulator = (
            f"--kubeconfig={self._kubeconfig_of('kwok', credentials)}",
            f"--server-address=127.0.0.1:{ports.kwok}",
            # Without leases the nodes would go NotReady after 50 s, and their pods with them.
            *("--manage-all-nodes=true", "--node-lease-duration-seconds=40", "--cidr=10.244.0.1/16"),
            *(f"--config={path}" for path in stages),
            *settings.kwok_arguments,
        )
        self._run("kwok", tools.kwok, *simulator)

    def _run(
        self, name: str, program: Path, *arguments: str, probe: Callable[[], bool] | None = None
    ) -> None:
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        # kwok and client-go look for files of their own under HOME.
        env = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin"}
        log = logs / f"{name}.log"
        self._commands[name] = (program, arguments)
        process = start_process(name, [program, *arguments], log=log, keep=self._keep, env=env)
        self.processes = (*self.processes, process)
        self._write_state()
        if probe is not None:
            wait_until_ready(process, probe)

    def _process(self, name: str) -> Process:
        return next(process for process in self.processes if process.name == name)

    def _kubeconfig_of(self, user: str, credentials: Credentials) -> Path:
        path = self.folder / f"{user.removeprefix('system:')}.kubeconfig"
        return write_kubeconfig(path, credentials.with_token(self._tokens[user]), user=user)

    def _write_state(self) -> None:
        state = State(
            owner=this_process(),
            keep=self._keep,
            kubeconfig=self.folder / "admin.kubeconfig",
            processes=self.processes,
        )
        write_state(self.folder, state)
