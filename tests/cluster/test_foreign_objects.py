"""What others hold or refuse (names, quotas, policies) is told in a condition and not hammered."""

import json
import uuid
from collections.abc import Callable, Iterator

import pytest

from control_plane.audit import AuditEvent, now, read_audit
from control_plane.client import Client, Json
from control_plane.cluster import Cluster
from control_plane.waiting import wait_for
from deployed import LEADER, LLAMA_8B, LLAMA_405B, WORKER, Deployed
from operator_process import MDEP, OperatorAccount, crd, operator, operator_account
from pod_trace import PodTrace
from shardwright_operator.apply import notes

__all__ = ["crd", "operator", "operator_account"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

Nodes = Callable[..., tuple[str, ...]]

H100 = "H100-SXM-80GB"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that others hold, and refused writes, are tried again after a second."""
    monkeypatch.setattr(notes, "FIRST_DELAY_S", 1.0)


OTHERS: dict[str, Json] = {
    "client Service": {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "llama"},
        "spec": {"selector": {"app": "mine"}, "ports": [{"port": 1}]},
    },
    "client Service without a selector, into which an apply would merge": {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "llama"},
        "spec": {"ports": [{"name": "mine", "port": 1}]},
    },
    "ranks Service": {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "llama-0-ranks"},
        "spec": {"clusterIP": "None", "ports": [{"port": 1}]},
    },
    "NetworkPolicy": {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "llama-0"},
        "spec": {"podSelector": {"matchLabels": {"app": "mine"}}},
    },
    "PodDisruptionBudget": {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "llama-0"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "mine"}}},
    },
    "leader StatefulSet": {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "llama-0-leader"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "mine"}},
            "template": {
                "metadata": {"labels": {"app": "mine"}},
                "spec": {"containers": [{"name": "c", "image": "i.invalid/i"}]},
            },
        },
    },
}
PROBES = {"networkpolicies": "NetworkPolicy", "statefulsets": "leader StatefulSet"}
"""Objects with which it is found out whether a kind is refused."""
OTHERS["worker StatefulSet"] = {**OTHERS["leader StatefulSet"], "metadata": {"name": "llama-0-worker"}}


@pytest.mark.parametrize("other", [pytest.param(other, id=name) for name, other in OTHERS.items()])
def test_object_of_somebody_else_is_left_alone_until_it_goes(
    *,
    other: Json,
    api: Client,
    kubectl: Callable[..., str],
    namespace: str,
    gpu_nodes: Nodes,
    impatient: None,
) -> None:
    gpu_nodes(H100, 2)
    kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(other))
    kind, name = other["kind"], other["metadata"]["name"]

    def standing() -> Json:
        body: Json = json.loads(kubectl("get", kind, name, "-n", namespace, "-o", "json"))
        return body

    before = standing()
    llama = Deployed(api, namespace, LLAMA_405B).create()
    message = llama.wait("Stalled", "True", "NameConflict")

    assert message.startswith(
        f"{kind} {name} exists already and belongs to somebody else (it has no controller"
    )
    assert message.endswith("rename this resource, or delete that object")
    wait_for(lambda: llama.pods() == [], "no half of a group runs")
    after = standing()
    assert (after["spec"], after["metadata"].get("labels")) == (
        before["spec"],
        before["metadata"].get("labels"),
    )
    assert "ownerReferences" not in after["metadata"]

    kubectl("delete", kind, name, "-n", namespace)
    llama.wait_ready()
    assert llama.condition("Stalled") == ("", "")
    assert llama.group["restarts"] == 0


def test_revision_of_somebody_else_is_left_alone_until_it_goes(
    api: Client, kubectl: Callable[..., str], namespace: str, gpu_nodes: Nodes, impatient: None
) -> None:
    gpu_nodes(H100, 2)
    llama = Deployed(api, namespace, LLAMA_405B).create_ready()
    name = llama.status["revision"]
    api.delete(MDEP, "llama", namespace, propagation="Foreground")
    llama.wait_gone()
    other = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": name},
        "data": {"mine": True},
        "revision": 7,
    }
    kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(other))
    llama.create()
    message = llama.wait("Stalled", "True", "NameConflict")

    assert f"ControllerRevision {name} exists already and belongs to somebody else" in message
    assert api.get("controllerrevisions.apps", name, namespace)["data"] == {"mine": True}
    api.delete("controllerrevisions.apps", name, namespace)
    llama.wait_ready()


def test_object_that_another_controller_owns_is_left_alone(
    api: Client, namespace: str, gpu_nodes: Nodes, impatient: None
) -> None:
    gpu_nodes(H100, 1)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": namespace}}
    owner = api.create(config)
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    metadata = {"name": "llama", "namespace": namespace, "ownerReferences": [reference]}
    spec = {"ports": [{"name": "mine", "port": 1}]}
    api.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    llama = Deployed(api, namespace, LLAMA_8B).create()
    message = llama.wait("Stalled", "True", "NameConflict")

    assert "it has another controller" in message
    standing = api.get("services", "llama", namespace)
    assert standing["metadata"]["ownerReferences"] == [reference]
    assert "selector" not in standing["spec"]


def test_quota_that_refuses_the_pods(api: Client, namespace: str, gpu_nodes: Nodes) -> None:
    gpu_nodes(H100, 2)
    quota: Json = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": namespace},
        "spec": {"hard": {"requests.nvidia.com/gpu": "8"}},
    }
    api.create(quota)
    wait_for(
        lambda: api.get("resourcequotas", "gpus", namespace).get("status", {}).get("hard"), "the quota counts"
    )
    llama = Deployed(api, namespace, LLAMA_405B).create()
    wait_for(
        lambda: "1 of 2 pods exist; what holds a pod back: kubectl describe" in llama.message("Ready"),
        "the missing pod is told, and where to look",
        detail=lambda: llama.status,
    )
    assert llama.condition("Ready") == ("False", "Starting")

    api.patch("resourcequotas", "gpus", {"spec": {"hard": {"requests.nvidia.com/gpu": "16"}}}, namespace)
    llama.wait_ready()
    assert llama.group["restarts"] == 0


@pytest.fixture
def deny(api: Client, namespace: str) -> Iterator[Callable[..., Callable[[], None]]]:
    """``allow = deny(plural, message)``: a kind cannot be created in the namespace until ``allow()``.

    With ``only`` just the object of that name.
    """
    name = f"deny-{uuid.uuid4().hex[:8]}"
    kinds = ("validatingadmissionpolicybindings", "validatingadmissionpolicies")
    made: list[str] = []

    def allow() -> None:
        while made:
            api.delete(f"{made.pop()}.admissionregistration.k8s.io", name)

    def start(plural: str, message: str, *, only: str = "") -> Callable[[], None]:
        version = "admissionregistration.k8s.io/v1"
        expression = f"object.metadata.name != '{only}'" if only else "false"
        selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [plural]}
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"namespaceSelector": selector, "resourceRules": [rule]},
            "validations": [{"expression": expression, "message": message}],
        }
        policy = {"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}}
        api.create({**policy, "spec": spec})
        made.insert(0, kinds[1])
        binding = {**policy, "kind": "ValidatingAdmissionPolicyBinding"}
        api.create({**binding, "spec": {"policyName": name, "validationActions": ["Deny"]}})
        made.append(kinds[0])
        metadata = {"name": only or "probe", "namespace": namespace}
        probe = {**OTHERS[PROBES[plural]], "metadata": metadata}

        def refused() -> bool:
            try:
                api.create(probe, dry_run=True)
            except Exception as error:  # noqa: BLE001 - whatever it is, its text must be the policy's
                return message in str(error)
            return False

        wait_for(refused, "the policy is in force")
        return allow

    yield start
    allow()


def test_write_that_is_refused_for_good_is_told_and_not_hammered(
    *,
    api: Client,
    cluster: Cluster,
    namespace: str,
    gpu_nodes: Nodes,
    operator_account: OperatorAccount,
    deny: Callable[..., Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cluster.audit_log is not None
    monkeypatch.setattr(notes, "FIRST_DELAY_S", 2.0)
    gpu_nodes(H100, 2)
    allow = deny("networkpolicies", "network policies are the platform team's")
    began = now()
    llama = Deployed(api, namespace, LLAMA_405B).create()
    message = llama.wait("Ready", "False", "WriteRefused")
    assert message.startswith("the API server refuses NetworkPolicy llama-0: ")
    assert "network policies are the platform team's" in message

    # Each of these makes the operator look at the resource again.
    for replicas in (2, 1, 2, 1):
        llama.edit(replicas=replicas)
        llama.wait("Ready", "False", "WriteRefused")
    tries = [
        event
        for event in read_audit(
            cluster.audit_log,
            user=operator_account.user,
            since=began,
            namespace=namespace,
            resource="networkpolicies",
            verbs={"patch", "create"},
        )
        if event.name == "llama-0"
    ]
    spent_s = (now() - began).total_seconds()
    assert len(tries) <= 1 + spent_s / 2

    allow()
    llama.wait_ready()


def test_no_group_starts_without_its_network_policy(
    api: Client,
    namespace: str,
    gpu_nodes: Nodes,
    deny: Callable[..., Callable[[], None]],
    impatient: None,
) -> None:
    gpu_nodes(H100, 2)
    allow = deny("networkpolicies", "no")
    llama = Deployed(api, namespace, LLAMA_405B)
    trace = PodTrace(api, namespace)
    llama.create()
    llama.wait("Ready", "False", "WriteRefused")
    llama.edit(replicas=1, workload={"inputTokens": 1024})
    llama.wait("Ready", "False", "WriteRefused")
    assert trace.events() == []
    allow()
    llama.wait_ready()
    assert sorted(llama.uids()) == [LEADER, WORKER]


def test_leader_set_does_not_come_and_go_while_its_worker_set_is_refused(
    *,
    api: Client,
    cluster: Cluster,
    namespace: str,
    gpu_nodes: Nodes,
    operator_account: OperatorAccount,
    deny: Callable[..., Callable[[], None]],
    impatient: None,
) -> None:
    log = cluster.audit_log
    assert log is not None
    gpu_nodes(H100, 2)
    allow = deny("statefulsets", "no workers here", only="llama-0-worker")
    trace = PodTrace(api, namespace)

    def writes(name: str) -> list[AuditEvent]:
        found = read_audit(log, user=operator_account.user, namespace=namespace, verbs={"patch"})
        return [event for event in found if event.resource == "statefulsets" and event.name == name]

    llama = Deployed(api, namespace, LLAMA_405B).create()
    wait_for(lambda: len(writes("llama-0-worker")) >= 4, "it was tried again and again")
    assert all("dryRun=All" in event.uri for event in writes("llama-0-worker")[1:])
    assert len(writes("llama-0-leader")) == 2
    assert llama.group["message"] == "waits: StatefulSet llama-0-worker is refused"

    allow()
    llama.wait_ready()
    came = [event.name for event in trace.comings_and_goings() if event.change == "ADDED"]
    assert sorted(came) == [LEADER, LEADER, WORKER]
