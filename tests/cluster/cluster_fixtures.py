"""Fixtures of any test that has a cluster: a client, namespaces and simulated GPU nodes.

They stand on a fixture ``cluster``, which each folder of tests brings along.
"""

import contextlib
import functools
import uuid
from collections.abc import Callable, Iterator

import pytest

from control_plane.client import ApiError, Client
from control_plane.cluster import Cluster
from control_plane.nodes import delete_nodes, make_nodes
from control_plane.waiting import wait_for


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Client]:
    """The administrator's client: one for each module, since some have a cluster of their own."""
    client = cluster.client()
    yield client
    client.close()


@pytest.fixture
def kubectl(cluster: Cluster) -> Callable[..., str]:
    """``kubectl("get", "pods", stdin=None)`` returns stdout and raises CommandError with stderr."""
    return cluster.kubectl


@pytest.fixture
def make_namespace(api: Client) -> Iterator[Callable[..., str]]:
    """Make further namespaces: ``make_namespace(labels={...})`` returns the name."""
    made: list[str] = []

    def make(prefix: str = "test", labels: dict[str, str] | None = None) -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        api.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}}
        )
        made.append(name)
        # Pods are refused until the namespace has its ServiceAccount.
        wait_for(
            functools.partial(api.find, "serviceaccounts", "default", name),
            f"namespace {name} has an account",
        )
        return name

    yield make
    for name in made:
        with contextlib.suppress(ApiError):
            # At once: while a namespace goes, its resources would still queue for the next test's nodes.
            api.request("DELETE", f"/apis/shardwright.dev/v1alpha1/namespaces/{name}/modeldeployments")
        with contextlib.suppress(ApiError):
            api.delete("namespaces", name)


@pytest.fixture
def namespace(make_namespace: Callable[..., str]) -> str:
    """A fresh namespace; its deletion at the end is not waited for."""
    return make_namespace()


@pytest.fixture
def gpu_nodes(cluster: Cluster, api: Client) -> Iterator[Callable[..., tuple[str, ...]]]:
    """``gpu_nodes("H100-SXM-80GB", 2)`` makes nodes that are gone, pods included, after the test.

    Arguments are those of ``control_plane.make_nodes`` after the client.
    """
    if not cluster.simulated:
        pytest.skip("simulated GPU nodes need kwok in the given cluster")
    made: list[str] = []

    def make(*arguments: object, **options: object) -> tuple[str, ...]:
        names = make_nodes(api, *arguments, **options)  # type: ignore[arg-type]
        made.extend(names)
        return names

    yield make
    delete_nodes(api, made)
