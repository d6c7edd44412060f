"""An operator that serves one namespace, with no other one beside it that would answer in its place."""

from collections.abc import Callable

import pytest

from control_plane.client import Client, Json
from control_plane.cluster import Cluster
from deployed import FOUND_405B, Deployed, leave_no_demand
from operator_process import crd, grant_account, revoke_account, running_operator

__all__ = ["crd", "leave_no_demand"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("leave_no_demand")]

HARDWARE: Json = {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2}


@pytest.fixture
def nodes(gpu_nodes: Callable[..., tuple[str, ...]]) -> tuple[str, ...]:
    return gpu_nodes("H100-SXM-80GB", 2)


@pytest.mark.usefixtures("crd", "nodes")
def test_one_namespace_mode_works_on_declared_hardware_without_rights_on_nodes(
    cluster: Cluster, api: Client, namespace: str
) -> None:
    account = grant_account(cluster, api, namespace, watch_namespaces=(namespace,))
    try:
        with running_operator(
            cluster, namespaces=(namespace,), kubeconfig=account.kubeconfig, **account.lease
        ):
            Deployed(api, namespace, {**FOUND_405B, "hardware": HARDWARE}, name="told").create_ready()
            untold = Deployed(api, namespace, FOUND_405B, name="untold").create()
            untold.wait("PlanAccepted", "False", "NoGPUNodes")
            assert untold.condition("Stalled") == ("True", "NoGPUNodes")
            assert "give hardware.gpu, hardware.gpusPerNode and hardware.maxNodes" in untold.message("Ready")
    finally:
        revoke_account(api, account)
