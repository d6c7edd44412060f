"""These tests have a control plane of their own, never a given cluster.

They delete the CRD and register other API servers, which nobody wants done to a cluster that matters; and the
autoscaler is to look every second and not every fifteen.
"""

from collections.abc import Callable, Iterator

import pytest

from cluster_fixtures import api, gpu_nodes, kubectl, make_namespace
from control_plane.client import Client
from control_plane.cluster import Cluster
from control_plane.plane import ControlPlane, Settings
from control_plane.waiting import wait_for
from operator_process import MDEP

__all__ = ["api", "gpu_nodes", "kubectl", "make_namespace"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The control plane of these tests."""
    settings = Settings(controller_manager_arguments=("--horizontal-pod-autoscaler-sync-period=1s",))
    with ControlPlane(settings=settings) as plane:
        yield plane.cluster


@pytest.fixture
def namespace(api: Client, make_namespace: Callable[..., str]) -> Iterator[str]:
    """A fresh namespace. Its resources are gone at the end: they would compete with the next test."""
    name = make_namespace()
    yield name
    api.request("DELETE", f"/apis/shardwright.dev/v1alpha1/namespaces/{name}/modeldeployments")
    wait_for(lambda: not api.list(MDEP, name), "no resource is left")
