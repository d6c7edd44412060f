"""Whatever is asked for, there is an answer: one condition that says what is wrong, and what to do.

The API server refuses what the schema can express (test_api.py has those cases). Here stand the cases that
need the planner, other objects or the server's own refusals to show.
"""

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from control_plane.audit import now, read_audit
from control_plane.client import Client, Json
from control_plane.cluster import Cluster
from control_plane.waiting import wait_for
from deployed import LEADER, LLAMA_8B, LLAMA_405B, WORKER, Deployed, OperatorSwitch
from operator_process import MDEP, OperatorAccount, crd, operator_account
from pod_trace import PodTrace
from shardwright_operator.apply import claims, notes
from shardwright_operator.cli import main
from shardwright_operator.decide import claim

__all__ = ["crd", "operator_account"]

pytestmark = pytest.mark.cluster

Nodes = Callable[..., tuple[str, ...]]

H100 = "H100-SXM-80GB"
ONE_NODE: Json = {"gpu": H100, "gpusPerNode": 8, "maxNodes": 1}


@pytest.fixture(scope="module", autouse=True)
def switch(cluster: Cluster, operator_account: OperatorAccount) -> Iterator[OperatorSwitch]:
    switch = OperatorSwitch(cluster, operator_account)
    switch.up()
    yield switch
    switch.down()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that others hold and refused writes are tried again after a second, absent claims too."""
    monkeypatch.setattr(notes, "FIRST_DELAY_S", 1.0)
    monkeypatch.setattr(claims, "MISSING_S", 0.2)
    monkeypatch.setattr(claim, "POLL_S", 0.5)


REFUSED_SPECS = {
    "pinned tensor size that does not divide the heads": (
        {
            "model": {"name": "meta-llama/Llama-3.1-70B-Instruct"},
            "parallelism": {"tensor": 6},
            "hardware": ONE_NODE,
        },
        "InvalidSpec",
        2,
        ("spec.parallelism.tensor is 6", "64 attention heads", "the legal sizes here are 1, 2, 4, 8"),
    ),
    "unknown model and no config": (
        {"model": {"name": "acme/unheard-of"}, "hardware": ONE_NODE},
        "UnknownModel",
        2,
        (
            "spec.model.name is 'acme/unheard-of'",
            "the Hub id of a model in its catalogue",
            "config.json into spec.model.config",
            "--config FILE",
        ),
    ),
    "inline config without what counts": (
        {"model": {"name": "acme/own", "config": {"model_type": "llama"}}, "hardware": ONE_NODE},
        "InvalidSpec",
        2,
        ("spec.model.config",),
    ),
    "plan that does not fit": (
        {"model": {"name": "meta-llama/Llama-3.1-405B-Instruct"}, "hardware": ONE_NODE},
        "DoesNotFit",
        1,
        ("GiB", "What would help:", "TP8 x PP2 on 16 H100-SXM-80GB GPUs fits, 8 more than allowed now"),
    ),
    "unknown GPU": (
        {
            "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
            "hardware": {**ONE_NODE, "gpu": "H900"},
        },
        "UnknownGPU",
        2,
        ("spec.hardware.gpu is 'H900'", "the known GPUs are H100-SXM-80GB", "A100-SXM-40GB"),
    ),
    "service level that is required and missed": (
        {**LLAMA_405B, "slo": {"timePerOutputToken": "2ms", "policy": "Require"}},
        "SLOMissed",
        1,
        ("time per output token", "2 ms"),
    ),
}


@pytest.mark.parametrize(
    ("spec", "reason", "code", "words"),
    [pytest.param(*case, id=name) for name, case in REFUSED_SPECS.items()],
)
def test_refused_spec_says_why_in_the_condition_and_on_the_command_line(
    *,
    spec: Json,
    reason: str,
    code: int,
    words: tuple[str, ...],
    api: Client,
    namespace: str,
    tmp_path: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    llama = Deployed(api, namespace, spec).create()
    message = llama.wait("Stalled", "True", reason)

    assert [word for word in words if word not in message] == []
    assert llama.condition("PlanAccepted") == ("False", reason)
    assert llama.condition("Ready") == ("False", reason)
    assert llama.condition("Reconciling") == ("", "")
    assert llama.children() == []

    file = tmp_path / "llama.json"
    file.write_text(json.dumps(llama.created | {"metadata": {"name": "llama"}}))
    assert main(["plan", "-f", str(file)]) == code
    output = capsys.readouterr()
    said = " ".join((output.out + output.err).split())
    # A sentence about the spec is the same in both; an answer of the planner is laid out as a table there.
    assert (message in said) if code == 2 else (words[-1] in said)


def test_edit_that_does_not_fit_leaves_the_earlier_revision_running(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes(H100, 1)
    llama = Deployed(api, namespace, LLAMA_8B).create()
    llama.wait_ready()
    pods, plan = llama.uids(), llama.status["plan"]

    llama.edit(model={"name": "meta-llama/Llama-3.1-405B-Instruct"})
    message = llama.wait("Stalled", "True", "DoesNotFit")
    assert "GiB" in message
    assert (llama.uids(), llama.status["plan"]) == (pods, plan)
    assert llama.condition("Available") == ("True", "GroupsReady")
    assert llama.group["phase"] == "Ready"

    llama.edit(model=LLAMA_8B["model"])
    llama.wait_ready()
    assert llama.uids() == pods


def test_broken_group_of_an_earlier_revision_comes_back_while_the_new_spec_is_refused(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes(H100, 2)
    llama = Deployed(api, namespace, LLAMA_405B).create()
    llama.wait_ready()
    before = llama.pods()
    llama.edit(parallelism={"tensor": 6})
    llama.wait("Stalled", "True", "InvalidSpec")
    revision = llama.group["revision"]
    api.delete("pods", WORKER, namespace)

    wait_for(
        lambda: (
            llama.group.get("phase") == "Ready"
            and {p["metadata"]["uid"] for p in before}.isdisjoint(llama.uids().values())
        ),
        "the group came back",
        detail=lambda: llama.status,
    )
    assert llama.group["revision"] == revision


@pytest.fixture
def make_claim(api: Client, namespace: str) -> Iterator[Callable[[str, str], None]]:
    """``make_claim(name, mode)`` makes a claim that is bound to a volume of its own."""
    made: list[str] = []

    def make(name: str, mode: str) -> None:
        volume = f"{name}-{uuid.uuid4().hex[:8]}"
        api.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": volume},
                "spec": {
                    "capacity": {"storage": "1Ti"},
                    "accessModes": [mode],
                    "claimRef": {"namespace": namespace, "name": name},
                    "persistentVolumeReclaimPolicy": "Retain",
                    "nfs": {"server": "files.invalid", "path": "/models"},
                },
            }
        )
        made.append(volume)
        api.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {
                    "accessModes": [mode],
                    "storageClassName": "",
                    "volumeName": volume,
                    "resources": {"requests": {"storage": "1Ti"}},
                },
            }
        )

    yield make
    for volume in made:
        api.delete("persistentvolumes", volume)


def from_claim(name: str) -> Json:
    return {**LLAMA_405B["model"], "source": {"persistentVolumeClaim": {"claimName": name}}}


def test_claim_that_one_node_only_may_mount(
    api: Client, namespace: str, gpu_nodes: Nodes, make_claim: Callable[[str, str], None]
) -> None:
    gpu_nodes(H100, 2)
    make_claim("single", "ReadWriteOnce")
    make_claim("shared", "ReadOnlyMany")
    llama = Deployed(api, namespace, {**LLAMA_405B, "model": from_claim("single")}).create()
    message = llama.wait("Stalled", "True", "VolumeNotShared")

    assert message == (
        "spec.model.source.persistentVolumeClaim.claimName is 'single', but its access modes are "
        "ReadWriteOnce and 2 pods on 2 nodes need it; use a claim with ReadOnlyMany or ReadWriteMany."
    )
    assert llama.children() == []
    llama.edit(model=from_claim("shared"))
    llama.wait_ready()


def test_claim_that_appears_later(
    api: Client, namespace: str, gpu_nodes: Nodes, make_claim: Callable[[str, str], None], impatient: None
) -> None:
    gpu_nodes(H100, 2)
    llama = Deployed(api, namespace, {**LLAMA_405B, "model": from_claim("weights")}).create()
    message = llama.wait("Reconciling", "True", "WaitingForVolume")

    assert message == "the claim 'weights' of spec.model.source.persistentVolumeClaim does not exist"
    assert llama.condition("Stalled") == ("", "")
    make_claim("weights", "ReadWriteMany")
    llama.wait_ready()


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
    llama = Deployed(api, namespace, LLAMA_405B).create()
    llama.wait_ready()
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
def deny(api: Client, namespace: str) -> Iterator[Callable[[str, str], Callable[[], None]]]:
    """``allow = deny(plural, message)``: writes of a kind are refused in the namespace until ``allow()``."""
    name = f"deny-{uuid.uuid4().hex[:8]}"
    kinds = ("validatingadmissionpolicybindings", "validatingadmissionpolicies")
    made: list[str] = []

    def allow() -> None:
        while made:
            api.delete(f"{made.pop()}.admissionregistration.k8s.io", name)

    def start(plural: str, message: str) -> Callable[[], None]:
        version = "admissionregistration.k8s.io/v1"
        selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [plural]}
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"namespaceSelector": selector, "resourceRules": [rule]},
            "validations": [{"expression": "false", "message": message}],
        }
        policy = {"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}}
        api.create({**policy, "spec": spec})
        made.insert(0, kinds[1])
        binding = {**policy, "kind": "ValidatingAdmissionPolicyBinding"}
        api.create({**binding, "spec": {"policyName": name, "validationActions": ["Deny"]}})
        made.append(kinds[0])
        probe = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "probe", "namespace": namespace},
            "spec": {"podSelector": {}},
        }

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
    deny: Callable[[str, str], Callable[[], None]],
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
    deny: Callable[[str, str], Callable[[], None]],
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
