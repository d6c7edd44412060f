"""Scaling by others: ``kubectl scale``, and the real autoscaler by metrics of another API server."""

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from control_plane import audit
from control_plane.client import Client, Json
from control_plane.cluster import Cluster
from control_plane.waiting import wait_for
from deployed import LLAMA_405B, Deployed
from gitops_loop import GitOpsLoop
from metrics_api import METRIC, MetricsApi
from operator_process import ROOT, crd, operator, operator_account

__all__ = ["crd", "operator", "operator_account"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

HPA = "horizontalpodautoscalers.autoscaling"
EXAMPLE = ROOT / "examples" / "autoscaling" / "horizontal-pod-autoscaler.yaml"
PER_GROUP = 8
ANY_STEP = {"type": "Percent", "value": 900, "periodSeconds": 1}
AT_ONCE = {"stabilizationWindowSeconds": 0, "policies": [ANY_STEP]}
AUTOSCALER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"

METRICS = {
    "pods": {
        "type": "Pods",
        "pods": {
            "metric": {"name": METRIC},
            "target": {"type": "AverageValue", "averageValue": str(PER_GROUP)},
        },
    },
    "external": {
        "type": "External",
        "external": {
            "metric": {"name": METRIC},
            "target": {"type": "AverageValue", "averageValue": str(PER_GROUP)},
        },
    },
}


@pytest.fixture
def llama(api: Client, namespace: str, gpu_nodes: Callable[..., object]) -> Deployed:
    """A resource of two pods a group, not made yet, and nodes for three groups."""
    gpu_nodes("H100-SXM-80GB", 6)
    return Deployed(api, namespace, LLAMA_405B)


@pytest.fixture
def metrics(api: Client, namespace: str, tmp_path: Path) -> Iterator[MetricsApi]:
    with MetricsApi(api, namespace, tmp_path) as served:
        yield served


def autoscale(llama: Deployed, metric: str) -> None:
    """Make an autoscaler that acts at once."""
    target = {"apiVersion": "shardwright.dev/v1alpha1", "kind": "ModelDeployment", "name": llama.name}
    limits = {"minReplicas": 1, "maxReplicas": 3}
    behavior = {"scaleUp": AT_ONCE, "scaleDown": AT_ONCE}
    llama.api.create(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"namespace": llama.namespace, "name": llama.name},
            "spec": {
                "scaleTargetRef": target,
                **limits,
                "metrics": [METRICS[metric]],
                "behavior": behavior,
            },
        }
    )


def wait_groups(llama: Deployed, groups: int) -> None:
    """Wait until so many groups are wanted, serve, and are all that is there."""

    def reached() -> bool:
        live = llama.live
        wanted, ready = live["spec"]["replicas"], live["status"].get("ready")
        return (wanted, ready, len(llama.pods())) == (groups, f"{groups}/{groups}", 2 * groups)

    wait_for(reached, f"{groups} groups", timeout_s=60, detail=lambda: _autoscaler(llama))


def _autoscaler(llama: Deployed) -> Json:
    found = llama.api.find(HPA, llama.name, llama.namespace) or {}
    return {"autoscaler": found.get("status"), "resource": llama.live["spec"].get("replicas")}


def wishes(cluster: Cluster, llama: Deployed, since: datetime) -> list[str]:
    """Who wrote the number of groups since then, by the audit log."""
    assert cluster.audit_log is not None
    found = audit.read_audit(
        cluster.audit_log,
        since=since,
        namespace=llama.namespace,
        verbs=audit.WRITE_VERBS,
        resource="modeldeployments",
    )
    return [event.user for event in found if event.subresource == "scale"]


def test_kubectl_scale_makes_whole_groups(llama: Deployed, kubectl: Callable[..., str]) -> None:
    llama.create().wait_ready()
    kubectl("scale", "mdep", "llama", "--replicas=3", "-n", llama.namespace)
    wait_groups(llama, 3)


def test_the_scale_subresource_counts_groups_and_selects_their_leaders(
    api: Client, llama: Deployed, kubectl: Callable[..., str]
) -> None:
    llama.create().wait_ready()
    kubectl("scale", "mdep", "llama", "--replicas=2", "-n", llama.namespace)
    wait_groups(llama, 2)
    path = f"/apis/shardwright.dev/v1alpha1/namespaces/{llama.namespace}/modeldeployments/llama/scale"
    scale = api.request("GET", path)
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (2, 2)
    selected = api.list("pods", llama.namespace, labels=scale["status"]["selector"])
    assert sorted(p["metadata"]["name"] for p in selected) == ["llama-0-leader-0", "llama-1-leader-0"]


@pytest.mark.parametrize("metric", METRICS)
def test_the_autoscaler_follows_the_load_up_and_down(
    llama: Deployed, metrics: MetricsApi, metric: str
) -> None:
    metrics.load = PER_GROUP
    llama.create().wait_ready()
    autoscale(llama, metric)
    metrics.load = 3 * PER_GROUP
    wait_groups(llama, 3)
    metrics.load = PER_GROUP
    wait_groups(llama, 1)


def test_the_autoscaler_asks_for_metrics_of_leaders_alone(llama: Deployed, metrics: MetricsApi) -> None:
    metrics.load = 2 * PER_GROUP
    llama.create().wait_ready()
    autoscale(llama, "pods")
    wait_groups(llama, 2)
    both = ("llama-0-leader-0", "llama-1-leader-0")
    wait_for(lambda: both in metrics.pods_asked_for, "both leaders are asked for")
    assert {name for names in metrics.pods_asked_for for name in names} == set(both)


@pytest.mark.parametrize("way", ["server", "client"])
def test_nobody_fights_the_autoscaler_while_git_leaves_replicas_out(
    cluster: Cluster, llama: Deployed, metrics: MetricsApi, way: str
) -> None:
    metrics.load = PER_GROUP
    git = {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": llama.name, "namespace": llama.namespace},
        "spec": LLAMA_405B,
    }
    since = audit.now()
    with GitOpsLoop(cluster, git, way):
        llama.wait_ready()
        before = llama.uids()
        autoscale(llama, "external")
        metrics.load = 3 * PER_GROUP
        wait_groups(llama, 3)
        metrics.load = PER_GROUP
        wait_groups(llama, 1)
    # Up once, down once: the first generation is the creation's.
    assert llama.live["metadata"]["generation"] == 3
    assert wishes(cluster, llama, since) == [AUTOSCALER, AUTOSCALER]
    assert llama.uids() == before


def test_the_example_is_accepted_and_means_the_resource(api: Client, llama: Deployed, namespace: str) -> None:
    manifest = yaml.safe_load(EXAMPLE.read_text())
    api.create(manifest, namespace, dry_run=True)
    target = manifest["spec"]["scaleTargetRef"]
    assert (target["apiVersion"], target["kind"]) == ("shardwright.dev/v1alpha1", "ModelDeployment")
    assert manifest["spec"]["metrics"][0]["pods"]["metric"]["name"] == METRIC
