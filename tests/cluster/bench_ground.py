"""What ``make bench`` measures on: a control plane with many GPU nodes, and the operator as a process."""

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from control_plane.audit import AuditEvent, account_user, read_audit
from control_plane.client import Client
from control_plane.nodes import make_nodes
from control_plane.plane import ControlPlane, Settings
from control_plane.ports import reserved_ports
from control_plane.waiting import wait_for, wait_served

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds" / "shardwright.dev_modeldeployments.yaml"
SHARDWRIGHT = Path(sys.executable).with_name("shardwright")
ACCOUNT = ("shardwright-bench", "operator")
MDEP = "modeldeployments.shardwright.dev"
THREADS = 16

SPEC: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "slo": {"concurrency": 32, "timePerOutputToken": "150ms", "timeToFirstToken": "30s"},
    "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2},
}

CALM = Settings(
    kwok_arguments=("--node-lease-duration-seconds=400",),
    controller_manager_arguments=("--node-monitor-grace-period=500s",),
)
"""Nodes renew their leases every 100 s: at their usual 10 s, two thousand of them cost a core of a small
machine, and that is what would be measured."""


def say(what: str, figure: str) -> None:
    """Print one figure."""
    print(f"{what:<62} {figure}", flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCost:
    """CPU time and memory of a process so far."""

    cpu_s: float
    rss_mib: float
    peak_mib: float

    @classmethod
    def of(cls, pid: int) -> "ProcessCost":
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
        sizes = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Vm")}
        ticks = os.sysconf("SC_CLK_TCK")
        return cls(
            cpu_s=(int(fields[11]) + int(fields[12])) / ticks,
            rss_mib=int(sizes["VmRSS"]) / 1024,
            peak_mib=int(sizes["VmHWM"]) / 1024,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAtWork:
    """The operator's process, and when it was started."""

    pid: int
    metrics_url: str
    started: float

    @property
    def cost(self) -> ProcessCost:
        return ProcessCost.of(self.pid)

    def metric(self, name: str) -> float:
        """A metric without labels, or the first of its values."""
        with urllib.request.urlopen(self.metrics_url, timeout=30) as answer:  # noqa: S310 - loopback
            lines = answer.read().decode().splitlines()
        return float(next(line for line in lines if line.startswith(name)).rpartition(" ")[2])

    def has_settled(self, passes: int) -> bool:
        """Whether it has made so many passes and has nothing left to do at once."""
        return (
            self.metric("shardwright_reconcile_total") >= passes
            and self.metric("shardwright_queue_depth") == 0
        )


class Ground:
    """A control plane with GPU nodes and the operator's identity."""

    def __init__(self, *, nodes: int) -> None:
        self.plane = ControlPlane(settings=CALM)
        self._nodes = nodes
        self.client: Client
        self.kubeconfig: Path

    def __enter__(self) -> Self:
        self.plane.start()
        try:
            self._furnish()
        except BaseException:
            self.plane.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.plane.stop()

    def _furnish(self) -> None:
        cluster = self.plane.cluster
        self.client = cluster.client()
        started = time.monotonic()
        in_parallel(
            lambda index: make_nodes(self.client, "H100-SXM-80GB", 1, prefix=f"gpu{index}"), self._nodes
        )
        say(f"(a control plane with {self._nodes} GPU nodes)", f"({time.monotonic() - started:.0f} s)")
        cluster.kubectl("apply", "--server-side", "-f", str(CRD))
        wait_served(self.client, MDEP)
        self.kubeconfig = self._account()

    def _account(self) -> Path:
        """An identity of its own, so that the audit log tells the operator's requests from ours."""
        namespace, name = ACCOUNT
        cluster = self.plane.cluster
        self.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        cluster.kubectl("create", "serviceaccount", name, "--namespace", namespace)
        cluster.kubectl(
            "create",
            "clusterrolebinding",
            "shardwright-bench",
            "--clusterrole=cluster-admin",
            f"--serviceaccount={namespace}:{name}",
        )
        return cluster.account_kubeconfig(namespace, name)

    def namespace(self, name: str) -> str:
        """Make a namespace in which pods can be made."""
        self.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        wait_for(
            lambda: self.client.find("serviceaccounts", "default", name), f"namespace {name} has an account"
        )
        return name

    def clear(self, namespace: str) -> None:
        """Delete a namespace and wait until its pods and sets are gone."""
        self.client.delete("namespaces", namespace)
        wait_for(
            lambda: not any(self.client.table(kind, namespace) for kind in ("pods", "statefulsets.apps")),
            f"{namespace} is empty",
            timeout_s=300,
            interval_s=1.0,
        )

    def ready_pods(self, namespace: str) -> int:
        """Pods that are ready, by the columns that kubectl prints: whole, they are work for all."""
        return sum(pod["Ready"] == "1/1" for pod in self.client.table("pods", namespace))

    def await_pods(self, namespace: str, count: int, started: float) -> float:
        """Wait until so many pods are ready; seconds since the start."""
        wait_for(
            lambda: self.ready_pods(namespace) == count,
            "all pods are ready",
            timeout_s=900,
            interval_s=0.5,
        )
        return time.monotonic() - started

    def cpu_s(self) -> Mapping[str, float]:
        """CPU time of each server so far."""
        return {p.name: ProcessCost.of(p.pid).cpu_s for p in self.plane.processes}

    def requests(self, since: datetime) -> list[AuditEvent]:
        """The operator's requests, by the audit log; LISTs, watches and the Lease apart."""
        user = account_user(*ACCOUNT)
        events = read_audit(self.plane.audit_log, user=user, since=since, leases=False)
        return [event for event in events if event.verb not in {"watch", "list"} and event.resource]


@contextmanager
def running_operator(ground: Ground) -> Iterator[OperatorAtWork]:
    """The operator as a process; it serves on entry and is ended at the end."""
    with (
        tempfile.NamedTemporaryFile("w+", prefix="shardwright-operator-", suffix=".log") as log,
        reserved_ports(1) as (port,),
    ):
        started = time.monotonic()
        process = subprocess.Popen(
            [str(SHARDWRIGHT), "operator", "--health-port", str(port), "--metrics-port", str(port)],
            env={**os.environ, "KUBECONFIG": str(ground.kubeconfig)},
            stdout=log,
            stderr=log,
        )
        try:
            wait_for(lambda: "serving" in Path(log.name).read_text(), "the operator works", timeout_s=120)
            url = f"http://127.0.0.1:{port}/metrics"
            yield OperatorAtWork(pid=process.pid, metrics_url=url, started=started)
        finally:
            process.terminate()
            process.wait(timeout=30)


def in_parallel(work: Callable[[int], object], count: int, *, first: int = 0) -> None:
    """Do something for each number from ``first`` to ``count``, some at a time."""
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(first, count)))
