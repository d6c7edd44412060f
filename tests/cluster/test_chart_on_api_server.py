"""The chart on a real API server: it is accepted as it is, in both modes, under the restricted profile."""

from collections.abc import Callable
from pathlib import Path

import pytest

from control_plane.client import Client
from control_plane.cluster import Cluster
from control_plane.waiting import wait_for

pytestmark = pytest.mark.cluster

CHART = str(Path(__file__).parents[2] / "charts" / "shardwright")
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.mark.parametrize("one_namespace", [False, True], ids=["cluster-wide", "one namespace"])
def test_install_upgrade_and_uninstall(
    cluster: Cluster, api: Client, make_namespace: Callable[..., str], one_namespace: bool
) -> None:
    namespace = make_namespace(labels=RESTRICTED)
    flags = [
        "--namespace",
        namespace,
        "--set",
        "crds.enabled=false",
        "--set",
        "podDisruptionBudget.enabled=true",
    ]
    if one_namespace:
        flags += ["--set", f"watchNamespaces={{{namespace}}},rbac.aggregate=false"]
    cluster.helm("install", "sw", CHART, *flags)
    try:
        pods = wait_for(
            lambda: api.list("pods", namespace, labels="app.kubernetes.io/name=shardwright"),
            "the restricted profile lets the pod in",
        )
        (container,) = pods[0]["spec"]["containers"]
        assert container["args"][0] == "operator"
        cluster.helm("upgrade", "sw", CHART, *flags, "--set", "networkPolicy.enabled=true")
        assert api.find("networkpolicies.networking.k8s.io", "sw-shardwright", namespace)
        cluster_role = api.find("clusterroles.rbac.authorization.k8s.io", f"{namespace}-sw-shardwright")
        assert (cluster_role is None) is one_namespace
    finally:
        cluster.helm("uninstall", "sw", "--namespace", namespace)
    assert api.find("deployments.apps", "sw-shardwright", namespace) is None
