"""Fixtures of the tests that need a cluster.

One cluster serves the whole session, because most tests need only a namespace of their own. It is the local
control plane, or the cluster of SHARDWRIGHT_TEST_KUBECONFIG, for which nothing is built or started.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_fixtures import api, gpu_nodes, kubectl, make_namespace, namespace
from control_plane.cluster import GIVEN_KUBECONFIG, Cluster
from control_plane.plane import ControlPlane

__all__ = ["api", "gpu_nodes", "kubectl", "make_namespace", "namespace"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The session's cluster."""
    given = os.environ.get(GIVEN_KUBECONFIG)
    if given:
        with tempfile.TemporaryDirectory(prefix="shardwright-") as folder:
            yield Cluster.given(Path(given).resolve(), Path(folder))
    else:
        with ControlPlane() as plane:
            yield plane.cluster
