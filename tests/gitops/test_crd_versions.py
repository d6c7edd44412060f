"""The CRD is upgraded and goes back under groups that serve."""

import contextlib
import copy
from collections.abc import Callable, Iterator
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml

from control_plane import audit
from control_plane.client import ApiError, Client, Json
from control_plane.cluster import Cluster
from control_plane.waiting import wait_for
from deployed import LLAMA_405B, Deployed
from operator_process import (
    CRD,
    MDEP,
    OperatorAccount,
    apply_crd,
    crd,
    operator_account,
    running_operator,
)
from threaded_operator import ThreadedOperator

__all__ = ["crd", "operator_account"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

FIELD = "omen"


@pytest.fixture(scope="module")
def operator(cluster: Cluster, operator_account: OperatorAccount) -> Iterator[ThreadedOperator]:
    """It lists each second: no watch tells that a CRD cuts other fields than before."""
    settings = {"kubeconfig": operator_account.kubeconfig, "resync_interval_s": 1.0, **operator_account.lease}
    with running_operator(cluster, **settings) as running:
        yield running


def next_crd() -> Json:
    """The CRD with one more field of the spec and one of the status."""
    body: Json = copy.deepcopy(yaml.safe_load(CRD.read_text()))
    (version,) = body["spec"]["versions"]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    for part in ("spec", "status"):
        properties[part]["properties"][FIELD] = {"type": "string", "maxLength": 64}
    return body


def older_crd() -> Json:
    """The CRD of a release that did not know ``network.clients``."""
    body: Json = copy.deepcopy(yaml.safe_load(CRD.read_text()))
    (version,) = body["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["network"]["properties"][
        "clients"
    ]
    return body


def obstacle(operator: ThreadedOperator) -> str:
    """What the operator's readiness says; empty while it is ready."""
    assert operator.operator.health is not None
    try:
        with urlopen(f"http://127.0.0.1:{operator.operator.health.health_port}/readyz"):
            return ""
    except HTTPError as error:
        with error:
            return error.read().decode()


@pytest.fixture
def llama(api: Client, namespace: str, gpu_nodes: Callable[..., object]) -> Deployed:
    """A group of two pods that is Ready."""
    gpu_nodes("H100-SXM-80GB", 2)
    return Deployed(api, namespace, LLAMA_405B).create_ready()


@pytest.fixture
def upgrade(cluster: Cluster, api: Client, llama: Deployed) -> Iterator[Callable[[], None]]:
    """``upgrade()`` brings the next CRD into force; it is taken back at the end."""

    def apply() -> None:
        # As the same field manager that applies the CRD's file.
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(next_crd()))
        wait_for(lambda: serves_field(llama), "the next CRD is in force")

    yield apply
    apply_crd(cluster, api)


def serves_field(llama: Deployed) -> bool:
    """Whether the API server keeps the field; the newest schema is in force some moments after its apply."""
    path = f"/apis/shardwright.dev/v1alpha1/namespaces/{llama.namespace}/modeldeployments/{llama.name}"
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    body = {"spec": {FIELD: "good"}}
    with contextlib.suppress(ApiError):
        answer = llama.api.request(
            "PATCH", path, body=body, query=query, content_type="application/merge-patch+json"
        )
        return FIELD in answer["spec"]
    return False


def downgrade(cluster: Cluster, llama: Deployed) -> None:
    apply_crd(cluster, llama.api)
    wait_for(lambda: not serves_field(llama), "the old CRD is in force")


def test_up_and_down_again_touches_no_pod_and_writes_nothing(
    cluster: Cluster, upgrade: Callable[[], None], llama: Deployed, operator_account: OperatorAccount
) -> None:
    assert cluster.audit_log is not None
    before, status, since = llama.uids(), llama.status, audit.now()
    upgrade()
    downgrade(cluster, llama)
    # A look that comes after all that shows that the operator still watches.
    llama.edit(rollout={"maxUnavailable": 1})
    llama.wait("Ready", "True", "GroupsReady")
    writes = audit.read_audit(
        cluster.audit_log,
        user=operator_account.user,
        since=since,
        namespace=llama.namespace,
        verbs=audit.WRITE_VERBS,
    )
    assert [f"{w.verb} {w.full_resource}" for w in writes] == ["patch modeldeployments/status"]
    assert (llama.uids(), llama.status["revision"]) == (before, status["revision"])


def test_a_field_that_this_version_does_not_know_is_named_and_touches_no_pod(
    upgrade: Callable[[], None], llama: Deployed
) -> None:
    before = llama.uids()
    upgrade()
    llama.edit(omen="good")
    message = llama.wait("Stalled", "True", "InvalidSpec")
    assert f"spec.{FIELD}" in message
    assert (llama.uids(), llama.condition("Available")[0]) == (before, "True")


def test_a_field_that_the_older_crd_cuts_leaves_the_resource_as_it_was(
    cluster: Cluster, upgrade: Callable[[], None], llama: Deployed
) -> None:
    before = llama.uids()
    upgrade()
    llama.edit(omen="good")
    llama.wait("Stalled", "True", "InvalidSpec")
    downgrade(cluster, llama)
    assert FIELD not in llama.api.get(MDEP, llama.name, llama.namespace)["spec"]
    llama.wait("Ready", "True", "GroupsReady", timeout_s=40)
    assert llama.uids() == before


def test_under_an_older_crd_nothing_is_touched_and_readiness_names_the_field(
    cluster: Cluster, operator: ThreadedOperator, llama: Deployed
) -> None:
    """Without ``network.clients`` the spec would wish for an API that is open to everybody."""
    llama.edit(network={"clients": []})
    policy = {"group": "networkpolicies.networking.k8s.io", "name": "llama-0"}

    def open_to() -> Json:
        found: Json = llama.api.get(policy["group"], policy["name"], llama.namespace)["spec"]["ingress"]
        return found

    wait_for(lambda: len(open_to()) == 1, "the API is closed")
    llama.wait("Ready", "True", "GroupsReady")
    before = llama.uids()
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(older_crd()))
    try:
        wait_for(lambda: "it cuts spec.network.clients;" in obstacle(operator), "readiness names the field")
        assert "clients" not in llama.live["spec"].get("network", {})
    finally:
        apply_crd(cluster, llama.api)
    wait_for(lambda: not obstacle(operator), "the operator is ready again")
    llama.edit(rollout={"maxUnavailable": 1})
    llama.wait("Ready", "True", "GroupsReady")
    assert (len(open_to()), llama.uids()) == (1, before)
