"""Children that somebody changes or removes come back as they were, and no fight becomes a hot loop."""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from control_plane import audit
from control_plane.client import JSON_PATCH, ApiError, Client, Json
from control_plane.cluster import Cluster
from control_plane.waiting import wait_for
from deployed import (
    BUDGETS,
    FOUND_405B,
    POLICIES,
    SETS,
    Deployed,
    conditions,
    leave_no_demand,
)
from operator_process import OperatorAccount, crd, operator, operator_account
from written import described, writes_of

__all__ = ["crd", "leave_no_demand", "operator", "operator_account"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator", "leave_no_demand")]

MANAGED_BY = "app.kubernetes.io/managed-by"
DEPLOYMENT = "shardwright.dev/model-deployment"
ROLE = "shardwright.dev/role"

CHILDREN = [
    pytest.param("services", "llama", id="client Service"),
    pytest.param("services", "llama-0-ranks", id="ranks Service"),
    pytest.param(POLICIES, "llama-0", id="NetworkPolicy"),
    pytest.param(BUDGETS, "llama-0", id="PodDisruptionBudget"),
]


@pytest.fixture
def deployment(api: Client, namespace: str, gpu_nodes: Callable[..., object]) -> Deployed:
    """A two-node resource that serves."""
    gpu_nodes("H100-SXM-80GB", 2)
    return Deployed(api, namespace, FOUND_405B).create_ready()


def content(child: Json) -> Json:
    """What we say about a child: no status, no bookkeeping of the server's."""
    kept = ("labels", "annotations", "ownerReferences")
    metadata = {name: child["metadata"].get(name) for name in kept}
    # A list's items carry no kind.
    rest = {k: v for k, v in child.items() if k not in {"metadata", "status", "kind", "apiVersion"}}
    return {"metadata": metadata, **rest}


@pytest.mark.parametrize(("resource", "name"), CHILDREN)
def test_a_deleted_child_comes_back(deployment: Deployed, resource: str, name: str) -> None:
    uids, before = deployment.uids(), deployment.objects(resource)[name]
    deployment.api.delete(resource, name, deployment.namespace)
    after = wait_for(
        lambda: (
            (found := deployment.objects(resource).get(name))
            and found["metadata"]["uid"] != before["metadata"]["uid"]
            and found
        ),
        f"{name} is made anew",
    )
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert deployment.uids() == uids


EDITS = [
    pytest.param("services", "llama", {"spec": {"ports": [{"port": 9}]}}, id="port of the client Service"),
    pytest.param(
        "services",
        "llama",
        {"spec": {"selector": {"shardwright.dev/role": "worker"}}},
        id="selector of the client Service",
    ),
    pytest.param(
        "services",
        "llama-0-ranks",
        {"spec": {"publishNotReadyAddresses": False}},
        id="names of unready ranks",
    ),
    pytest.param(POLICIES, "llama-0", {"spec": {"ingress": [{}]}}, id="rules of the NetworkPolicy"),
    pytest.param(BUDGETS, "llama-0", {"spec": {"minAvailable": 0}}, id="PodDisruptionBudget"),
    pytest.param(
        SETS,
        "llama-0-leader",
        {"spec": {"updateStrategy": {"type": "RollingUpdate"}}},
        id="leader's strategy",
    ),
    pytest.param(
        SETS,
        "llama-0-worker",
        {"spec": {"template": {"metadata": {"labels": {"shardwright.dev/pods": "x"}}}}},
        id="worker's template",
    ),
    pytest.param("services", "llama", {"spec": {"selector": {"team": "search"}}}, id="key in a selector"),
    pytest.param(
        SETS,
        "llama-0-worker",
        {"metadata": {"labels": {"shardwright.dev/role": "leader"}}},
        id="label of a set",
    ),
]


@pytest.mark.parametrize(("resource", "name", "change"), EDITS)
def test_an_edited_child_is_put_right_and_no_pod_restarts(
    deployment: Deployed, resource: str, name: str, change: Json
) -> None:
    uids, before = deployment.uids(), deployment.objects(resource)[name]
    changed = deployment.api.patch(resource, name, change, deployment.namespace)
    assert content(changed) != content(before)
    wait_for(
        lambda: content(deployment.api.get(resource, name, deployment.namespace)) == content(before),
        f"{name} is as it was",
        detail=lambda: deployment.api.get(resource, name, deployment.namespace),
    )
    deployment.wait_ready()
    assert deployment.uids() == uids


@pytest.mark.parametrize("name", ["llama-0-leader", "llama-0-worker"])
def test_a_set_that_somebody_scales_up_is_put_back_and_the_group_serves_on(
    deployment: Deployed, name: str
) -> None:
    uids, api, namespace = deployment.uids(), deployment.api, deployment.namespace
    api.patch(SETS, name, {"spec": {"replicas": 3}}, namespace)
    wait_for(
        lambda: api.get(SETS, name, namespace)["spec"]["replicas"] == 1 and deployment.uids() == uids,
        f"{name} has the pods that it had",
        detail=deployment.describe,
    )
    assert deployment.condition("Ready") == ("True", "GroupsReady")
    assert (deployment.group["restarts"], deployment.group["readyMembers"]) == (0, 2)


@pytest.mark.parametrize(
    ("resource", "name", "label"),
    [
        pytest.param("services", "llama-0-ranks", MANAGED_BY, id="ranks Service leaves the watch"),
        pytest.param("services", "llama-0-ranks", DEPLOYMENT, id="ranks Service names no owner"),
        pytest.param(SETS, "llama-0-leader", MANAGED_BY, id="leader set leaves the watch"),
        pytest.param(SETS, "llama-0-leader", DEPLOYMENT, id="leader set names no owner"),
        pytest.param(SETS, "llama-0-worker", MANAGED_BY, id="worker set leaves the watch"),
        pytest.param(SETS, "llama-0-worker", "shardwright.dev/group-index", id="worker set names no group"),
    ],
)
def test_a_removed_label_comes_back_and_no_pod_restarts(
    deployment: Deployed, resource: str, name: str, label: str
) -> None:
    uids = deployment.uids()
    before = deployment.api.get(resource, name, deployment.namespace)
    deployment.api.patch(resource, name, {"metadata": {"labels": {label: None}}}, deployment.namespace)
    wait_for(
        lambda: content(deployment.api.get(resource, name, deployment.namespace)) == content(before),
        "the label is back",
        detail=lambda: deployment.api.get(resource, name, deployment.namespace)["metadata"],
    )
    deployment.wait_ready()
    assert deployment.uids() == uids


def test_what_others_add_to_a_child_stays(deployment: Deployed) -> None:
    note = {"metadata": {"annotations": {"example.org/team": "search"}}}
    deployment.api.patch("services", "llama", note, deployment.namespace)
    deployment.api.patch("services", "llama", {"spec": {"sessionAffinity": "ClientIP"}}, deployment.namespace)
    # A write that is ours shows that the change has been seen.
    deployment.api.patch(BUDGETS, "llama-0", {"spec": {"minAvailable": 0}}, deployment.namespace)
    wait_for(lambda: deployment.objects(BUDGETS)["llama-0"]["spec"]["minAvailable"] == 2, "drift is repaired")
    service = deployment.objects("services")["llama"]
    assert service["metadata"]["annotations"] == {"example.org/team": "search"}
    assert service["spec"]["sessionAffinity"] == "ClientIP"


@contextlib.contextmanager
def altering(api: Client, namespace: str, resource: str, group: str, expression: str) -> Iterator[None]:
    """Within the block an admission policy alters each write of a resource in the namespace, by CEL."""
    name = f"alter-{uuid.uuid4().hex[:8]}"
    version = "admissionregistration.k8s.io/v1"
    rule = {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [resource],
    }
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceRules": [rule],
        },
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    }
    binding = {"policyName": name}
    try:
        for kind, content_ in (
            ("MutatingAdmissionPolicy", spec),
            ("MutatingAdmissionPolicyBinding", binding),
        ):
            api.create({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": content_})
        yield
    finally:
        for plural in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
            with contextlib.suppress(ApiError):
                api.delete(f"{plural}.admissionregistration.k8s.io", name)


def test_a_field_that_the_server_alters_each_time_is_told_and_not_fought_over(
    cluster: Cluster, deployment: Deployed, operator_account: OperatorAccount
) -> None:
    api, namespace = deployment.api, deployment.namespace
    expression = "Object{spec: Object.spec{minAvailable: 1}}"
    with altering(api, namespace, "poddisruptionbudgets", "policy", expression):
        # The policy takes a moment to be in force: touch the object until it is.
        def altered() -> bool:
            api.annotate(BUDGETS, "llama-0", {"touched": uuid.uuid4().hex}, namespace)
            return bool(api.get(BUDGETS, "llama-0", namespace)["spec"]["minAvailable"] == 1)

        wait_for(altered, "the policy is in force")
        since = audit.now()
        deployment.wait_status(lambda s: "FieldsOverridden" in conditions(s), "the status tells of it")
        time.sleep(10)
        writes = described(writes_of(cluster, operator_account.user, since, namespace))
        assert deployment.condition("Ready") == ("True", "GroupsReady")
        assert deployment.condition("FieldsOverridden") == ("True", "FieldOverridden")
        message = deployment.message("FieldsOverridden")
        assert "PodDisruptionBudget llama-0" in message
        assert "spec.minAvailable: wanted 2, found 1" in message
        assert [e["type"] for e in deployment.events() if e["reason"] == "FieldOverridden"] == ["Warning"]
    # The repair, its status and its Event; once more where the touching came between.
    assert len(writes) <= 6, writes
    assert len([w for w in writes if "poddisruptionbudgets" in w]) <= 2, writes


def test_somebody_who_undoes_each_write_is_told_and_not_raced(
    cluster: Cluster, deployment: Deployed, operator_account: OperatorAccount
) -> None:
    api, namespace = deployment.api, deployment.namespace
    end = threading.Event()
    path = "/spec/selector/shardwright.dev~1role"
    change = [{"op": "replace", "path": path, "value": "worker"}]

    def undo() -> None:
        while not end.wait(0.05):
            with contextlib.suppress(ApiError):
                if api.get("services", "llama", namespace)["spec"]["selector"][ROLE] != "worker":
                    api.patch("services", "llama", change, namespace, content_type=JSON_PATCH)

    other = threading.Thread(target=undo)
    since = audit.now()
    other.start()
    try:
        deployment.wait_status(lambda s: "FieldsOverridden" in conditions(s), "the status tells of it")
        time.sleep(10)
        writes = described(writes_of(cluster, operator_account.user, since, namespace))
        message = deployment.message("FieldsOverridden")
    finally:
        end.set()
        other.join()
    # At once, again at once, and then after 10 s, 20 s, ...
    assert len([w for w in writes if w == "patch services llama"]) <= 4, writes
    assert len(writes) <= 10, writes
    assert "Service llama" in message
    assert 'spec.selector.shardwright.dev/role: wanted "leader", found "worker"' in message
