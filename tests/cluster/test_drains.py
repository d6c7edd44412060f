"""Nodes that people and Kubernetes take away: drains move whole groups within the budget, or wait."""

from collections.abc import Callable

import pytest

from control_plane.client import Client
from control_plane.cluster import CommandError
from control_plane.nodes import cordon
from control_plane.waiting import wait_for
from deployed import LLAMA_405B, Deployed, leave_no_demand
from operator_process import crd, operator, operator_account
from pod_trace import PodTrace

__all__ = ["crd", "leave_no_demand", "operator", "operator_account"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator", "leave_no_demand")]

Nodes = Callable[..., tuple[str, ...]]
Kubectl = Callable[..., str]

DRAIN = ("drain", "--ignore-daemonsets", "--delete-emptydir-data", "--force")


def nodes_of(deployed: Deployed) -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in deployed.pods()}


def test_a_drain_moves_the_whole_group_and_ends_by_itself(
    api: Client, namespace: str, gpu_nodes: Nodes, kubectl: Kubectl
) -> None:
    gpu_nodes("H100-SXM-80GB", 4)
    llama = Deployed(api, namespace, LLAMA_405B).create_ready()
    old, trace = llama.pods(), PodTrace(api, namespace)
    drained = old[0]["spec"]["nodeName"]
    kubectl(*DRAIN, drained, "--timeout=60s")
    llama.wait_replaced(old)
    assert drained not in nodes_of(llama)
    assert [len(life) for life in trace.lives()] == [2, 2]
    assert (llama.group["restarts"], llama.group.get("firstFailure")) == (0, None)
    assert "Draining" in llama.reasons()


def test_nodes_of_two_groups_drained_at_once_move_one_group_after_the_other(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    names = gpu_nodes("H100-SXM-80GB", 8)
    llama = Deployed(api, namespace, {**LLAMA_405B, "replicas": 2}).create_ready()
    used, uids = nodes_of(llama), set(llama.uids().values())
    for name in used:
        cordon(api, name)
    fewest = 2

    def moved() -> bool:
        nonlocal fewest
        status = llama.status
        fewest = min(fewest, status.get("readyReplicas", 0))
        return status.get("readyReplicas") == 2 and nodes_of(llama) <= set(names) - used

    wait_for(moved, "both groups have moved", timeout_s=60, interval_s=0.05, detail=llama.describe)
    assert fewest == 1
    assert uids.isdisjoint(llama.uids().values())
    assert [g["restarts"] for g in llama.status["groups"]] == [0, 0]


def test_block_holds_the_drain_up_and_leaves_the_group(
    api: Client, namespace: str, gpu_nodes: Nodes, kubectl: Kubectl
) -> None:
    gpu_nodes("H100-SXM-80GB", 4)
    llama = Deployed(api, namespace, {**LLAMA_405B, "rollout": {"onDrain": "Block"}}).create_ready()
    uids = llama.uids()
    node = llama.pods()[0]["spec"]["nodeName"]
    with pytest.raises(CommandError, match="disruption budget"):
        kubectl(*DRAIN, node, "--timeout=7s")
    wait_for(
        lambda: llama.group["message"].endswith("is cordoned: spec.rollout.onDrain is Block"),
        "the group says why it stays",
        detail=llama.describe,
    )
    assert (llama.condition("Ready"), llama.uids()) == (("True", "GroupsReady"), uids)
    # Who allows it afterwards sets the group free.
    llama.edit(rollout={"onDrain": "Recreate"})
    wait_for(lambda: node not in nodes_of(llama), "the group moves", detail=llama.describe)
    llama.wait_ready()


def test_a_node_that_is_deleted_takes_its_group_elsewhere(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes("H100-SXM-80GB", 3)
    llama = Deployed(api, namespace, LLAMA_405B).create_ready()
    old = llama.pods()
    node = old[1]["spec"]["nodeName"]
    api.delete("nodes", node)
    # Kubernetes' pod collector comes by every 20 s, and gives the node 40 s to come back.
    llama.wait_replaced(old, timeout_s=120)
    assert node not in nodes_of(llama)
    assert (llama.evidence()["reason"], llama.evidence()["node"]) == ("NodeLost", node)
