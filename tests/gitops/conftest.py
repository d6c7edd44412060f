"""These tests have a control plane of their own, never a given cluster.

They delete the CRD and register other API servers, which nobody wants done to a cluster that matters; and the
autoscaler is to look every second and not every fifteen.
"""

from collections.abc import Iterator

import pytest

from cluster_fixtures import api, gpu_nodes, kubectl, make_namespace, namespace
from control_plane.cluster import Cluster
from control_plane.plane import ControlPlane, Settings

__all__ = ["api", "gpu_nodes", "kubectl", "make_namespace", "namespace"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The control plane of these tests."""
    settings = Settings(controller_manager_arguments=("--horizontal-pod-autoscaler-sync-period=1s",))
    with ControlPlane(settings=settings) as plane:
        yield plane.cluster
