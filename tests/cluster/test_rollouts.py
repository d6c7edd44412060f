"""Rollouts of several groups on a real control plane: surge, a bad image, a pause with a loss in it."""

from collections.abc import Callable

import pytest

from control_plane.client import Client, Json
from control_plane.faults import playing
from control_plane.waiting import wait_for
from deployed import FOUND_8B, LLAMA_405B, NCCL_DEBUG, SETS, WORKER, Deployed, leave_no_demand
from operator_process import crd, operator, operator_account
from pod_trace import PodTrace

__all__ = ["crd", "leave_no_demand", "operator", "operator_account"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator", "leave_no_demand")]

Nodes = Callable[..., tuple[str, ...]]


def has_debug(pod: Json) -> bool:
    return any(e["name"] == "NCCL_DEBUG" for e in pod["spec"]["containers"][0]["env"])


def fewest_ready(deployed: Deployed, done: Callable[[], bool], what: str) -> int:
    """Wait until ``done``, and return the lowest number of ready groups that a status told meanwhile."""
    counts: list[int] = []

    def look() -> bool:
        counts.append(deployed.status.get("readyReplicas", 0))
        return done()

    wait_for(look, what, timeout_s=60, interval_s=0.05, detail=deployed.describe)
    return min(counts)


def test_a_surge_into_a_whole_spare_group_costs_no_group(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes("H100-SXM-80GB", 6)
    rollout = {"maxSurge": 1, "maxUnavailable": 0}
    llama = Deployed(api, namespace, {**LLAMA_405B, "replicas": 2, "rollout": rollout}).create_ready()
    trace = PodTrace(api, namespace)
    llama.edit(engine=NCCL_DEBUG)

    def done() -> bool:
        pods = llama.pods()
        ready = llama.condition("Ready")[0] == "True"
        return ready and len(pods) == 4 and all(map(has_debug, pods)) and len(llama.objects(SETS)) == 4

    assert fewest_ready(llama, done, "all groups run the new revision") == 2
    for group in ("0", "1", "2"):
        assert len(trace.lives(group)) <= 2


def test_a_surge_without_room_waits_and_says_what_is_missing(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes("H100-SXM-80GB", 3)
    rollout = {"maxSurge": 1, "maxUnavailable": 0}
    llama = Deployed(api, namespace, {**LLAMA_405B, "rollout": rollout}).create_ready()
    uids = llama.uids()
    llama.edit(engine=NCCL_DEBUG)
    message = llama.wait("Ready", "False", "RollingOut")
    assert "no whole spare group fits: it needs 2 nodes with 8 free GPUs" in message
    assert message.endswith("8 GPUs are missing; waiting, as maxUnavailable is 0")
    assert llama.uids() == uids
    llama.edit(rollout={"maxUnavailable": 1})
    llama.wait_ready()
    assert all(map(has_debug, llama.pods()))


def test_a_bad_image_never_takes_the_last_good_group_and_an_undo_brings_all_back(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    rollout = {"progressDeadline": "4s", "maxUnavailable": 2}
    llama = Deployed(api, namespace, {**FOUND_8B, "replicas": 3, "rollout": rollout}).create()
    before = llama.wait_ready()
    uids = set(llama.uids().values())
    with playing(api, namespace, image_pull_fails="true"):
        llama.edit(engine={"image": "registry.invalid/vllm:v0.32.0"})
        message = llama.wait("Stalled", "True", "ProgressDeadlineExceeded")
        assert "has not served within 4s of its start" in message
        assert "ImagePullBackOff" in message
        assert llama.status["readyReplicas"] == 1
        assert len(uids & set(llama.uids().values())) == 1
    llama.edit(engine=None)
    llama.wait_ready()
    after = llama.status
    assert (after["revision"], after["ready"]) == (before["revision"], "3/3")


def test_a_group_that_breaks_while_paused_comes_back_on_its_old_revision(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    llama = Deployed(api, namespace, LLAMA_405B).create_ready()
    llama.edit(rollout={"paused": True}, engine=NCCL_DEBUG)
    llama.wait("Ready", "False", "Paused")
    old = llama.pods()
    api.delete("pods", WORKER, namespace)
    wait_for(lambda: llama.group["restarts"] == 1, "the loss is counted", detail=llama.describe)
    llama.wait("Ready", "False", "Paused")
    again = llama.pods()
    assert {p["metadata"]["uid"] for p in again}.isdisjoint(p["metadata"]["uid"] for p in old)
    assert not any(map(has_debug, again))
    llama.edit(rollout={"paused": False})
    llama.wait_ready()
    assert all(map(has_debug, llama.pods()))
