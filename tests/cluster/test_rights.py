"""The operator has the rights that it uses, and uses the rights that it has.

It runs here as the chart's ServiceAccount, with OwnerReferencesPermissionEnforcement on, through a whole life
of a resource. The API server's audit log is the witness: what it shows is compared with what was granted.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import yaml

from control_plane.audit import Right, now, read_audit, rights_used
from control_plane.client import Client, Json
from control_plane.cluster import Cluster
from control_plane.faults import play
from control_plane.waiting import wait_for
from deployed import LEADER, LLAMA_8B, LLAMA_405B, WORKER, Deployed
from operator_process import (
    CHART,
    MDEP,
    OperatorAccount,
    crd,
    grant_account,
    revoke_account,
    running_operator,
)

__all__ = ["crd"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crd")]

Nodes = Callable[..., tuple[str, ...]]

UNSEEN = Right("shardwright.dev", "modeldeployments/finalizers", "update")
"""Asked for by an admission plugin, never by a request: no log shows it. A test of its own shows the need."""

MODES = [pytest.param(False, id="cluster-wide"), pytest.param(True, id="one namespace")]


def rendered(cluster: Cluster, namespace: str, *settings: str) -> list[Json]:
    text = cluster.helm("template", "sw", str(CHART), "--namespace", namespace, *settings)
    return [document for document in yaml.safe_load_all(text) if document]


def rules(documents: list[Json]) -> list[Json]:
    return [rule for d in documents if d["kind"] in {"Role", "ClusterRole"} for rule in d["rules"]]


def granted(cluster: Cluster, namespace: str, *settings: str) -> frozenset[Right]:
    """Rights of the operator; those of its users are left out."""
    documents = rendered(cluster, namespace, "--set", "rbac.aggregate=false", *settings)
    return frozenset(
        Right(group, resource, verb)
        for rule in rules(documents)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


@pytest.fixture
def grant(
    cluster: Cluster, api: Client, make_namespace: Callable[..., str]
) -> Iterator[Callable[..., OperatorAccount]]:
    """``grant(watch_namespaces=())`` makes an account with the chart's rights, in a namespace of its own."""
    with ExitStack() as stack:

        def make(watch_namespaces: tuple[str, ...] = ()) -> OperatorAccount:
            account = grant_account(
                cluster, api, make_namespace("operator"), watch_namespaces=watch_namespaces
            )
            stack.callback(revoke_account, api, account)
            return account

        yield make


@pytest.fixture
def weights(api: Client, namespace: str) -> Iterator[str]:
    """Name of a claim that many pods may mount."""
    volume = f"weights-{uuid.uuid4().hex[:8]}"
    modes = {"accessModes": ["ReadWriteMany"]}
    source = {"nfs": {"server": "files.invalid", "path": "/"}, "capacity": {"storage": "1Ti"}}
    claim = {"namespace": namespace, "name": "weights"}
    header = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}}
    api.create({**header, "spec": {**modes, **source, "claimRef": claim}})
    wanted = {"storageClassName": "", "volumeName": volume, "resources": {"requests": {"storage": "1Ti"}}}
    header = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim}
    api.create({**header, "spec": {**modes, **wanted}})
    yield "weights"
    api.delete("persistentvolumes", volume)


def live_a_life(api: Client, llama: Deployed) -> None:
    """Create, fail, scale up and down, edit beyond the history's length, delete.

    The first revision has a download and a launcher of which the last one knows nothing.
    """
    llama.create().wait_ready()
    before = llama.pods()
    # The old leader stays for a while, so that the operator cuts its grace short.
    play(api, llama.namespace, LEADER, terminates_after="2s")
    api.delete("pods", WORKER, llama.namespace)
    llama.wait_replaced(before)

    llama.edit(replicas=2)
    llama.wait_ready()
    llama.edit(replicas=1)
    llama.wait_ready()

    old = llama.pods()
    llama.edit(model={"revision": "v2"})
    llama.wait_replaced(old)

    llama.edit(rollout={"paused": True})
    first = llama.status["revision"]
    for number in range(12):
        standing = llama.status["revision"]
        variable = {"name": "NCCL_DEBUG_SUBSYS", "value": str(number)}
        llama.edit(engine={"launcher": False, "env": [variable]})
        wait_for(lambda old=standing: llama.status["revision"] != old, "the edit is a revision")  # type: ignore[misc]
    old = llama.pods()
    llama.edit(rollout={"paused": False})
    llama.wait_replaced(old)
    wait_for(
        lambda: api.find("controllerrevisions.apps", first, llama.namespace) is None,
        "the oldest revision is gone",
        detail=lambda: [c["metadata"]["name"] for c in llama.children()],
    )
    ours = "app.kubernetes.io/managed-by=shardwright"
    wait_for(
        lambda: (
            len(api.list("jobs.batch", llama.namespace, labels=ours)) == 1
            and not api.list("configmaps", llama.namespace, labels=ours)
        ),
        "what only the oldest revisions needed is gone",
    )
    api.delete(MDEP, "llama", llama.namespace, propagation="Foreground")
    llama.wait_gone(timeout_s=90)


@pytest.mark.parametrize("one_namespace", MODES)
def test_rights_granted_are_the_rights_used(
    *,
    one_namespace: bool,
    cluster: Cluster,
    api: Client,
    namespace: str,
    gpu_nodes: Nodes,
    grant: Callable[..., OperatorAccount],
    weights: str,
) -> None:
    assert cluster.audit_log is not None
    spaces = (namespace,) if one_namespace else ()
    account = grant(watch_namespaces=spaces)
    settings = ("--set", f"watchNamespaces={{{namespace}}}") if one_namespace else ()
    gpu_nodes("H100-SXM-80GB", 4)
    model, storage = {**LLAMA_405B["model"], "revision": "v1"}, {"modelCache": {"claimName": weights}}
    began = now()
    with running_operator(cluster, kubeconfig=account.kubeconfig, namespaces=spaces, **account.lease):
        live_a_life(api, Deployed(api, namespace, {**LLAMA_405B, "model": model, "storage": storage}))

    seen = read_audit(cluster.audit_log, user=account.user, since=began)
    # Namespaces of earlier tests, on their way out, refuse new objects to everybody.
    refused = [e for e in seen if e.code == 403 and e.namespace in {"", namespace, *account.lease.values()}]
    assert refused == []
    assert granted(cluster, "operator", *settings) - rights_used(seen) == {UNSEEN}
    # What anybody may ask who has logged in: the version, the kinds that are served, and their schemas.
    asked = ("/version", "/api", "/openapi/v3")
    assert [e.uri for e in seen if not e.resource and not e.uri.startswith(asked)] == []


@pytest.mark.parametrize("one_namespace", MODES)
def test_no_rule_is_wider_than_it_says(*, one_namespace: bool, cluster: Cluster, namespace: str) -> None:
    settings = ("--set", "watchNamespaces={models}") if one_namespace else ()
    documents = rendered(cluster, namespace, *settings)
    words = {w for rule in rules(documents) for key in ("apiGroups", "resources", "verbs") for w in rule[key]}

    assert words & {"secrets", "*", "escalate", "bind", "impersonate", "deletecollection"} <= {
        # Users of the resource may delete many of theirs at once; the operator may not.
        "deletecollection"
    }
    operators = {right.verb for right in granted(cluster, namespace, *settings)}
    assert operators == {"get", "list", "watch", "create", "update", "patch", "delete"}
    if one_namespace:
        cluster_wide = [d["metadata"]["name"] for d in documents if d["kind"] == "ClusterRole"]
        assert all(name.endswith(("-view", "-edit")) for name in cluster_wide)


def test_without_the_right_that_no_log_shows_children_are_refused(
    cluster: Cluster, api: Client, namespace: str, gpu_nodes: Nodes, grant: Callable[..., OperatorAccount]
) -> None:
    account = grant()
    (role,) = (
        r
        for r in api.list("clusterroles.rbac.authorization.k8s.io")
        if r["metadata"]["name"].endswith(account.lease["lease_name"])
    )
    kept = [rule for rule in role["rules"] if UNSEEN.resource not in rule["resources"]]
    api.patch("clusterroles.rbac.authorization.k8s.io", role["metadata"]["name"], {"rules": kept})
    gpu_nodes("H100-SXM-80GB", 1)
    with running_operator(cluster, kubeconfig=account.kubeconfig, **account.lease):
        llama = Deployed(api, namespace, LLAMA_8B).create()
        message = llama.wait("Ready", "False", "WriteRefused")

    assert "cannot set blockOwnerDeletion" in message


@pytest.mark.parametrize("one_namespace", MODES)
@pytest.mark.parametrize("side", ["server", "client"])
def test_rendered_chart_applies_cleanly(
    *, side: str, one_namespace: bool, cluster: Cluster, namespace: str, kubectl: Callable[..., str]
) -> None:
    settings = ("--set", f"watchNamespaces={{{namespace}}}") if one_namespace else ()
    text = cluster.helm("template", "sw", str(CHART), "--namespace", namespace, *settings)
    flags = ("--server-side", "--force-conflicts") if side == "server" else ()
    kubectl("apply", "--dry-run=server", *flags, "-f", "-", stdin=text)

    names = [d["metadata"]["name"] for d in yaml.safe_load_all(text) if d]
    assert "modeldeployments.shardwright.dev" in names


def test_operator_of_an_applied_chart_is_let_in(
    cluster: Cluster, namespace: str, gpu_nodes: Nodes, kubectl: Callable[..., str]
) -> None:
    gpu_nodes(None, 1)
    text = cluster.helm("template", "sw", str(CHART), "--namespace", namespace, "--set", "crds.enabled=false")
    try:
        kubectl("apply", "-f", "-", stdin=text)
        kubectl("rollout", "status", "deployment/sw-shardwright", "-n", namespace, "--timeout=30s")
    finally:
        kubectl("delete", "--ignore-not-found", "-f", "-", stdin=text)
