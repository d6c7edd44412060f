"""Ways to run the operator against the tests' cluster, and the fixtures that most tests use.

In the tests' own process it starts in a fraction of a second and can be given other decisions; as a child
process it can be killed. Both take a Lease of their own name, so that one that was killed blocks nobody.
A test module takes the fixtures by ``from operator_process import crd, operator, operator_account``.
"""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from control_plane.audit import account_user
from control_plane.client import ApiError, Client
from control_plane.cluster import Cluster
from control_plane.waiting import wait_served
from shardwright_operator.reconciler import Decide
from shardwright_operator.settings import Settings
from threaded_operator import ThreadedOperator

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds" / "shardwright.dev_modeldeployments.yaml"
CHART = ROOT / "charts" / "shardwright"
MDEP = "modeldeployments.shardwright.dev"

STOP_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAccount:
    """An identity with exactly the rights that the chart grants."""

    kubeconfig: Path
    user: str
    """As the audit log names it."""
    lease: Mapping[str, str]
    """Settings of the one Lease that it may take."""


def apply_crd(cluster: Cluster, api: Client) -> None:
    """Apply the definition of the resource and wait until it is served."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD))
    wait_served(api, MDEP)


def grant_account(
    cluster: Cluster,
    api: Client,
    namespace: str,
    *,
    watch_namespaces: tuple[str, ...] = (),
    switches: tuple[str, ...] = (),
) -> OperatorAccount:
    """Make the chart's ServiceAccount in a namespace, with the chart's rights and nothing else of it.

    ``switches`` are values of the chart that are set to true.
    """
    release = f"sw-{uuid.uuid4().hex[:6]}"
    values = f"watchNamespaces={json.dumps(watch_namespaces)}"
    flags = [flag for switch in switches for flag in ("--set", f"{switch}=true")]
    rendered = cluster.helm(
        "template", release, str(CHART), "--namespace", namespace, "--set-json", values, *flags
    )
    wanted = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    documents = [d for d in yaml.safe_load_all(rendered) if d and d["kind"] in wanted]
    for document in documents:
        if document["kind"] == "ServiceAccount":
            document["metadata"].setdefault("namespace", namespace)
        api.apply(document)
    (account,) = (d["metadata"]["name"] for d in documents if d["kind"] == "ServiceAccount")
    (lease,) = (
        name
        for document in documents
        for rule in document.get("rules") or ()
        if "leases" in rule["resources"]
        for name in rule.get("resourceNames") or ()
    )
    return OperatorAccount(
        kubeconfig=cluster.account_kubeconfig(namespace, account),
        user=account_user(namespace, account),
        lease={"lease_name": lease, "lease_namespace": namespace},
    )


def revoke_account(api: Client, account: OperatorAccount) -> None:
    """Remove what ``grant_account`` made outside of the namespace."""
    release = account.lease["lease_name"]
    for resource in ("clusterrolebindings", "clusterroles"):
        group = "rbac.authorization.k8s.io"
        for found in api.list(f"{resource}.{group}"):
            if found["metadata"]["name"].endswith(release):
                with contextlib.suppress(ApiError):
                    api.delete(f"{resource}.{group}", found["metadata"]["name"])


def running_operator(
    cluster: Cluster,
    *,
    namespaces: tuple[str, ...] = (),
    kubeconfig: Path | None = None,
    version: str | None = None,
    decide: Decide | None = None,
    wait_ready: bool = True,
    **settings: Any,
) -> ThreadedOperator:
    """An operator in this process, as a context manager: awaited on entry, stopped at the end.

    By default it acts as the administrator; ``settings`` are further fields of ``Settings``.
    """
    values = _values(cluster, namespaces, kubeconfig, version, settings)
    return ThreadedOperator(Settings(**values), decide, wait_ready=wait_ready)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorProcess:
    """A child process that runs the operator."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def kill(self) -> None:
        """End it at once, as a lost node or the kernel would."""
        self.process.kill()
        self.process.wait(STOP_S)

    def wait_killed(self, timeout_s: float = 60.0) -> None:
        """Wait until it has been killed by SIGKILL; any other end is an AssertionError with its log."""
        code = self.process.wait(timeout_s)
        assert code == -signal.SIGKILL, f"ended with {code}\n{self.log.read_text()[-2000:]}"

    def stop(self) -> int:
        """End it in an orderly way and return its exit code."""
        self.process.terminate()
        return self.process.wait(STOP_S)


@contextlib.contextmanager
def operator_process(
    cluster: Cluster,
    *,
    namespaces: tuple[str, ...] = (),
    kubeconfig: Path | None = None,
    version: str | None = None,
    die_after_writes: int | None = None,
    sources: Path | None = None,
    **settings: Any,
) -> Iterator[OperatorProcess]:
    """An operator in a child process; it is not waited for, and is killed at the end if it still runs.

    With ``die_after_writes`` it kills itself after so many writes to children and status. ``sources`` is a
    folder with other sources of the project, which take the place of this checkout's.
    """
    values = _values(cluster, namespaces, kubeconfig, version, settings)
    arguments: list[str] = []
    for name, value in values.items():
        flag = name.removesuffix("_s").replace("_", "-")
        if isinstance(value, bool):
            arguments.append(f"--{flag}" if value else f"--no-{flag}")
        elif value != ():
            arguments += [f"--{flag}", ",".join(value) if isinstance(value, tuple) else str(value)]
    if die_after_writes is None:
        entry = ["-c", "import sys; from shardwright_operator.cli import main; sys.exit(main())", "operator"]
    else:
        entry = [str(Path(__file__).with_name("dying_operator.py")), str(die_after_writes)]
    log = cluster.folder / f"operator-{uuid.uuid4().hex[:8]}.log"
    env = dict(os.environ)
    if sources is not None:
        env["PYTHONPATH"] = os.pathsep.join(str(sources / root) for root in ("operator", "planner"))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *entry, *arguments], stdout=output, stderr=subprocess.STDOUT, env=env
        )
    try:
        yield OperatorProcess(process=process, log=log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(STOP_S)


def _values(
    cluster: Cluster,
    namespaces: tuple[str, ...],
    kubeconfig: Path | None,
    version: str | None,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    values: dict[str, Any] = {
        "kubeconfig": str(kubeconfig or cluster.kubeconfig),
        "namespaces": namespaces,
        "lease_name": f"test-{uuid.uuid4().hex[:8]}",
        "lease_namespace": namespaces[0] if namespaces else "default",
        "health_host": "127.0.0.1",
        "health_port": 0,
        "metrics_port": 0,
    }
    if version is not None:
        values["operator_version"] = version
    return values | settings


@functools.cache
def _crd_once(cluster: Cluster) -> None:
    api = cluster.client()
    try:
        apply_crd(cluster, api)
    finally:
        api.close()


@pytest.fixture(scope="module")
def crd(cluster: Cluster) -> None:
    """The resource is served; applied once a session."""
    _crd_once(cluster)


@pytest.fixture(scope="module")
def operator_account(cluster: Cluster, api: Client, crd: None) -> Iterator[OperatorAccount]:
    """The identity under which ``operator`` runs: the chart's, for the whole cluster."""
    namespace = f"operator-{uuid.uuid4().hex[:8]}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    account = grant_account(cluster, api, namespace)
    yield account
    revoke_account(api, account)
    api.delete("namespaces", namespace)


@pytest.fixture(scope="module")
def operator(cluster: Cluster, operator_account: OperatorAccount) -> Iterator[ThreadedOperator]:
    """One operator for the whole module, in cluster mode, with the chart's rights."""
    with running_operator(
        cluster, kubeconfig=operator_account.kubeconfig, **operator_account.lease
    ) as running:
        yield running
