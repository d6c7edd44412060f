"""The main job on a real control plane: from an applied resource to a group that serves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from control_plane.client import Client, Json
from control_plane.nodes import cordon, taint
from control_plane.waiting import wait_for
from deployed import (
    BUDGETS,
    FOUND_8B,
    FOUND_405B,
    POLICIES,
    REVISIONS,
    SETS,
    Deployed,
    conditions,
    leave_no_demand,
)
from operator_process import ROOT, crd, operator, operator_account

__all__ = ["crd", "leave_no_demand", "operator", "operator_account"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator", "leave_no_demand")]

Kubectl = Callable[..., str]
Nodes = Callable[..., tuple[str, ...]]

EXAMPLE = ROOT / "examples" / "llama-3.1-405b.yaml"


def gpus_of(pod: Json) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])


def environment(pod: Json) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in pod["spec"]["containers"][0]["env"]}


def argument(pod: Json, flag: str) -> str:
    container = pod["spec"]["containers"][0]
    words = [*container.get("command", ()), *container.get("args", ())]
    return str(words[words.index(flag) + 1])


def test_the_demo_s_path(api: Client, kubectl: Kubectl, namespace: str, gpu_nodes: Nodes) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    kubectl("apply", "-n", namespace, "-f", str(EXAMPLE))
    Deployed(api, namespace, {}, name="llama-405b").wait_ready()
    header, row = kubectl("get", "mdep", "-n", namespace).splitlines()
    assert header.split() == ["NAME", "MODEL", "TP", "PP", "GROUPS", "READY", "REASON", "AGE"]
    assert row.split()[:-1] == [
        "llama-405b",
        "meta-llama/Llama-3.1-405B-Instruct",
        *("8", "2", "1/1", "True", "GroupsReady"),
    ]


def test_405b_takes_two_nodes_with_a_rank_on_each(api: Client, namespace: str, gpu_nodes: Nodes) -> None:
    nodes = gpu_nodes("H100-SXM-80GB", 2)
    deployment = Deployed(api, namespace, FOUND_405B).create()
    status = deployment.wait_ready()
    plan, pods = status["plan"], {pod["metadata"]["name"]: pod for pod in deployment.pods()}
    assert {k: plan[k] for k in ("tensorParallel", "pipelineParallel", "dataParallel", "nodes")} == {
        "tensorParallel": 8,
        "pipelineParallel": 2,
        "dataParallel": 1,
        "nodes": 2,
    }
    assert {name: gpus_of(pod) for name, pod in pods.items()} == {
        "llama-0-leader-0": 8,
        "llama-0-worker-1": 8,
    }
    assert sorted(pod["spec"]["nodeName"] for pod in pods.values()) == sorted(nodes)
    ranks = {n: pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] for n, pod in pods.items()}
    assert ranks == {"llama-0-leader-0": "0", "llama-0-worker-1": "1"}
    assert {argument(pod, "--node-rank") for pod in pods.values()} == {"$(NODE_RANK)"}
    assert {argument(pod, "--tensor-parallel-size") for pod in pods.values()} == {"8"}
    assert {argument(pod, "--pipeline-parallel-size") for pod in pods.values()} == {"2"}
    sources = {json.dumps(environment(pod)["NODE_RANK"]) for pod in pods.values()}
    assert len(sources) == 1
    assert "apps.kubernetes.io/pod-index" in sources.pop()
    (group,) = status["groups"]
    assert (group["phase"], group["members"], group["readyMembers"], sorted(group["nodes"])) == (
        *("Ready", 2, 2),
        sorted(nodes),
    )


def test_all_children_of_a_resource(api: Client, namespace: str, gpu_nodes: Nodes) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    deployment = Deployed(api, namespace, FOUND_405B).create()
    status = deployment.wait_ready()
    found = {
        kind: sorted(deployment.objects(kind)) for kind in ("services", SETS, POLICIES, BUDGETS, REVISIONS)
    }
    assert found == {
        "services": ["llama", "llama-0-ranks"],
        SETS: ["llama-0-leader", "llama-0-worker"],
        POLICIES: ["llama-0"],
        BUDGETS: ["llama-0"],
        REVISIONS: [status["revision"]],
    }


def test_clients_reach_the_leader_alone(api: Client, namespace: str, gpu_nodes: Nodes) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    Deployed(api, namespace, FOUND_405B).create().wait_ready()

    def targets(service: str) -> list[str]:
        slices = api.list(
            "endpointslices.discovery.k8s.io", namespace, labels=f"kubernetes.io/service-name={service}"
        )
        found = [e for s in slices for e in s["endpoints"] or () if e["conditions"]["ready"]]
        return sorted(endpoint["targetRef"]["name"] for endpoint in found)

    wait_for(lambda: targets("llama") == ["llama-0-leader-0"], "the leader alone is an endpoint")
    wait_for(
        lambda: targets("llama-0-ranks") == ["llama-0-leader-0", "llama-0-worker-1"],
        "both ranks have their names",
    )


def test_8b_takes_one_gpu_and_has_no_worker_set(api: Client, namespace: str, gpu_nodes: Nodes) -> None:
    gpu_nodes("H100-SXM-80GB", 1)
    deployment = Deployed(api, namespace, FOUND_8B).create_ready()
    assert sorted(deployment.objects(SETS)) == ["llama-0-leader"]
    assert {p["metadata"]["name"]: gpus_of(p) for p in deployment.pods()} == {"llama-0-leader-0": 1}


def test_70b_with_more_than_20_gib_of_kv_cache_takes_tp4_on_one_node(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes("H100-SXM-80GB", 1)
    # 16 requests of 6144 tokens at 320 KiB of KV cache a token are 30 GiB: more than two GPUs leave free.
    spec = {
        "model": {"name": "meta-llama/Llama-3.1-70B", "dtype": "bfloat16"},
        "workload": {"inputTokens": 5120, "outputTokens": 1024, "maxModelLength": 8192},
        "slo": {"concurrency": 16},
    }
    deployment = Deployed(api, namespace, spec).create()
    plan = deployment.wait_ready()["plan"]
    assert (plan["tensorParallel"], plan["pipelineParallel"], plan["nodes"]) == (4, 1, 1)
    assert [gpus_of(pod) for pod in deployment.pods()] == [4]


def test_events_tell_the_story_in_order(api: Client, namespace: str, gpu_nodes: Nodes) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    deployment = Deployed(api, namespace, FOUND_405B).create_ready()
    wait_for(lambda: deployment.reasons()[-1:] == ["GroupsReady"], "the last event is posted")
    assert [(e["type"], e["reason"]) for e in deployment.events()] == [
        ("Normal", "Planned"),
        ("Normal", "GroupsReady"),
    ]
    # In the middle of a sentence its first letter is no capital.
    assert deployment.message("SLOPredicted")[1:] in deployment.events()[0]["message"]


def test_conditions_of_a_ready_resource_by_the_rules_of_kstatus(
    api: Client, kubectl: Kubectl, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    deployment = Deployed(api, namespace, FOUND_405B).create()
    status = deployment.wait_ready()
    # Reconciling and Stalled are abnormal-true: absent when all is well.
    assert conditions(status) == {
        "Ready": ("True", "GroupsReady"),
        "Available": ("True", "GroupsReady"),
        "PlanAccepted": ("True", "Planned"),
        "SLOPredicted": ("True", "SLOMet"),
    }
    assert {c["observedGeneration"] for c in status["conditions"]} == {1}
    kubectl("wait", "-n", namespace, "mdep/llama", "--for=condition=Ready", "--timeout=5s")


def test_a_resource_that_waits_is_reconciling_and_not_stalled(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes("H100-SXM-80GB", 1)
    hardware = {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2}
    deployment = Deployed(api, namespace, {**FOUND_405B, "hardware": hardware}).create()
    deployment.wait("Ready", "False", "WaitingForCapacity")
    status = deployment.status
    assert conditions(status) == {
        "Ready": ("False", "WaitingForCapacity"),
        "Reconciling": ("True", "WaitingForCapacity"),
        "Available": ("False", "WaitingForCapacity"),
        "PlanAccepted": ("True", "Planned"),
        "SLOPredicted": ("True", "SLOMet"),
    }
    assert "fits no node" in deployment.message("Ready")


def test_without_gpu_nodes_it_says_so_and_goes_on_by_itself_when_they_come(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    deployment = Deployed(api, namespace, FOUND_405B).create()
    deployment.wait("PlanAccepted", "False", "NoGPUNodes")
    status = deployment.status
    assert conditions(status) == {
        "Ready": ("False", "NoGPUNodes"),
        "Reconciling": ("True", "NoGPUNodes"),
        "Available": ("False", "NoGPUNodes"),
        "PlanAccepted": ("False", "NoGPUNodes"),
    }
    assert "no node offers nvidia.com/gpu" in deployment.message("Ready")
    assert "spec.hardware.gpu" in deployment.message("Ready")
    gpu_nodes("H100-SXM-80GB", 2)
    plan = deployment.wait_ready()["plan"]
    assert (plan["tensorParallel"], plan["pipelineParallel"]) == (8, 2)


def test_nodes_labelled_the_gke_way_are_found_and_selected(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    label = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
    nodes = gpu_nodes("H100-SXM-80GB", 1, discovery_labels=False, labels=label)
    deployment = Deployed(api, namespace, FOUND_8B).create()
    status = deployment.wait_ready()
    assert (status["plan"]["gpu"], status["groups"][0]["nodes"]) == ("H100-SXM-80GB", list(nodes))


def test_tainted_and_cordoned_nodes_do_not_count(api: Client, namespace: str, gpu_nodes: Nodes) -> None:
    tainted, cordoned, _ = gpu_nodes("H100-SXM-80GB", 3)
    taint(api, tainted, "dedicated", "NoSchedule", "training")
    cordon(api, cordoned)
    deployment = Deployed(api, namespace, FOUND_405B).create()
    # One node of 8 is left, and 405B in BF16 takes 755 GiB.
    deployment.wait("PlanAccepted", "False", "DoesNotFit")
    assert deployment.condition("Stalled") == ("True", "DoesNotFit")
    assert deployment.pods() == []
    cordon(api, cordoned, unschedulable=False)
    assert set(deployment.wait_ready()["groups"][0]["nodes"]).isdisjoint({tainted})


def test_all_nodes_left_out_are_counted_by_reason(api: Client, namespace: str, gpu_nodes: Nodes) -> None:
    names = gpu_nodes("H100-SXM-80GB", 2)
    for name in names:
        cordon(api, name)
    deployment = Deployed(api, namespace, FOUND_8B).create()
    deployment.wait("PlanAccepted", "False", "NoGPUNodes")
    wait_for(
        lambda: "2 cordoned" in deployment.message("Ready"), "the reason is given", detail=deployment.describe
    )


def test_a_tolerated_taint_counts(api: Client, namespace: str, gpu_nodes: Nodes) -> None:
    (name,) = gpu_nodes(
        "H100-SXM-80GB", 1, taints=[{"key": "dedicated", "value": "models", "effect": "NoSchedule"}]
    )
    tolerations = [{"key": "dedicated", "operator": "Equal", "value": "models"}]
    deployment = Deployed(api, namespace, {**FOUND_8B, "scheduling": {"tolerations": tolerations}}).create()
    assert deployment.wait_ready()["groups"][0]["nodes"] == [name]


def test_server_side_apply_by_a_user_sees_no_foreign_field(
    api: Client, kubectl: Kubectl, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    kubectl("apply", "--server-side", "-n", namespace, "-f", str(EXAMPLE))
    deployment = Deployed(api, namespace, {}, name="llama-405b")
    deployment.wait_ready()
    # A second apply without --force-conflicts: the operator holds no field of the spec.
    kubectl("apply", "--server-side", "-n", namespace, "-f", str(EXAMPLE))
    metadata = deployment.live["metadata"]
    managers = {(m["manager"], m.get("subresource")) for m in metadata["managedFields"]}
    assert managers == {("kubectl", None), ("shardwright-status", "status")}
    assert metadata["generation"] == 1


def test_kubectl_diff_is_empty_after_apply(
    api: Client, kubectl: Kubectl, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    kubectl("apply", "-n", namespace, "-f", str(EXAMPLE))
    Deployed(api, namespace, {}, name="llama-405b").wait_ready()
    # kubectl diff ends with 1 when there is a difference, which raises.
    assert kubectl("diff", "-n", namespace, "-f", str(EXAMPLE)) == ""


def test_the_operator_leaves_the_user_s_metadata_alone(api: Client, namespace: str, gpu_nodes: Nodes) -> None:
    gpu_nodes("H100-SXM-80GB", 1)
    deployment = Deployed(api, namespace, FOUND_8B).create_ready()
    metadata = deployment.live["metadata"]
    assert {k: metadata.get(k) for k in ("labels", "annotations", "finalizers")} == {
        "labels": None,
        "annotations": None,
        "finalizers": None,
    }


def test_a_restricted_namespace_runs_the_group(
    api: Client, make_namespace: Callable[..., str], gpu_nodes: Nodes
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    namespace = make_namespace(labels={"pod-security.kubernetes.io/enforce": "restricted"})
    Deployed(api, namespace, FOUND_405B).create().wait_ready()


EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in EXAMPLES])
def test_every_example_is_applied_and_planned(
    api: Client, kubectl: Kubectl, namespace: str, gpu_nodes: Nodes, path: Path
) -> None:
    output = kubectl("apply", "-n", namespace, "-f", str(path), "-o", "name")
    (name,) = (line.partition("/")[2] for line in output.split() if line.startswith("modeldeployment"))
    deployment = Deployed(api, namespace, {}, name=name)
    status = deployment.wait_status(lambda s: "PlanAccepted" in conditions(s), "the plan is made")
    assert conditions(status)["PlanAccepted"] == ("True", "Planned"), deployment.describe()
    # As many nodes of the declared kind as the groups need; the volume claim and the Secret are the user's.
    hardware, plan = deployment.live["spec"]["hardware"], status["plan"]
    groups = deployment.live["spec"]["replicas"]
    gpu_nodes(hardware["gpu"], plan["nodes"] * groups, gpus_per_node=hardware["gpusPerNode"])
    expected = plan["nodes"] * groups
    wait_for(lambda: len(deployment.pods()) == expected, "all pods exist", detail=deployment.describe)
