"""A group that loses a member comes back whole: on a real control plane, for each way to lose one.

What is shown each time: no pod of the old formation ever met one of the new, the cause is kept where a lost
status cannot take it away, and the restarts are counted.
"""

from collections.abc import Callable
from typing import Any

import pytest

from control_plane.client import STRATEGIC, ApiError, Client, Json
from control_plane.cluster import Cluster
from control_plane.faults import play, playing
from control_plane.nodes import lose_node
from control_plane.waiting import wait_for
from deployed import LEADER, LLAMA_8B, LLAMA_405B, WORKER, Deployed, OperatorSwitch, switch
from operator_process import MDEP, OperatorAccount, crd, operator_account, operator_process
from pod_trace import PodTrace
from shardwright_operator.api.constants import KIND
from shardwright_operator.decide import remains

__all__ = ["crd", "operator_account", "switch"]

pytestmark = pytest.mark.cluster

Nodes = Callable[..., tuple[str, ...]]


@pytest.fixture
def llama(api: Client, namespace: str, gpu_nodes: Nodes, switch: OperatorSwitch) -> Deployed:
    """A group of two pods that is Ready and has never failed."""
    gpu_nodes("H100-SXM-80GB", 2)
    return Deployed(api, namespace, LLAMA_405B).create_ready()


@pytest.fixture
def trace(api: Client, namespace: str, llama: Deployed) -> PodTrace:
    """The pods' record from when the group was whole."""
    return PodTrace(api, namespace)


def evict(api: Client, namespace: str, pod: str) -> None:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
    }
    api.request("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body=body)


def delete_both(api: Client, namespace: str) -> None:
    for pod in (LEADER, WORKER):
        api.delete("pods", pod, namespace)


LOSSES: dict[str, tuple[Callable[[Client, str], Any], str, tuple[int, ...], Json]] = {
    "worker deleted": (lambda api, ns: api.delete("pods", WORKER, ns), "MemberLost", (1,), {}),
    "leader deleted": (lambda api, ns: api.delete("pods", LEADER, ns), "MemberLost", (0,), {}),
    "both deleted": (delete_both, "MemberLost", (0, 1), {}),
    "worker's container restarted in place": (
        lambda api, ns: play(
            api, ns, WORKER, restarts="1", last_exit_code="1", exit_message="NCCL watchdog timeout"
        ),
        "PeerLost",
        (1,),
        {"exitCode": 1, "terminationMessage": "NCCL watchdog timeout"},
    ),
    "leader's container restarted in place after exit 0": (
        lambda api, ns: play(api, ns, LEADER, restarts="1", last_exit_code="0", exit_reason="Completed"),
        "ContainerRestarted",
        (0,),
        {"exitCode": 0},
    ),
    "worker out of memory": (
        lambda api, ns: play(api, ns, WORKER, restarts="1", last_exit_code="137", exit_reason="OOMKilled"),
        "OutOfMemory",
        (1,),
        {"exitCode": 137},
    ),
    "worker's container ended and not restarted yet": (
        lambda api, ns: play(api, ns, WORKER, exit_code="137", exit_reason="OOMKilled"),
        "OutOfMemory",
        (1,),
        {"exitCode": 137},
    ),
    "worker evicted by its kubelet": (
        lambda api, ns: play(api, ns, WORKER, fails="Evicted", exit_message="low on memory"),
        "Evicted",
        (1,),
        {},
    ),
    "leader's pod failed": (
        lambda api, ns: play(api, ns, LEADER, fails="NodeShutdown"),
        "MemberLost",
        (0,),
        {},
    ),
    "worker set deleted": (
        lambda api, ns: api.delete("statefulsets.apps", "llama-0-worker", ns),
        "MemberLost",
        (1,),
        {},
    ),
}


@pytest.mark.parametrize("loss", [pytest.param(loss, id=name) for name, loss in LOSSES.items()])
def test_group_comes_back_whole_and_keeps_the_evidence(
    loss: tuple[Callable[[Client, str], Any], str, tuple[int, ...], Json],
    api: Client,
    namespace: str,
    llama: Deployed,
    trace: PodTrace,
) -> None:
    strike, reason, ranks, evidence = loss
    before = llama.pods()
    strike(api, namespace)
    after = llama.wait_replaced(before)

    new = {pod["metadata"]["uid"] for pod in after}
    assert trace.companions(new) == set()
    first = llama.group["firstFailure"]
    assert llama.evidence() == first
    assert (first["reason"], first["nodeRank"] in ranks) == (reason, True)
    assert {key: first.get(key) for key in evidence} == evidence
    assert llama.leader_notes()["attempt"] == "1"
    assert llama.leader_notes()["members"].split(",") == [pod["metadata"]["uid"] for pod in after]
    assert llama.group["restarts"] == 1
    # The Service has the same name, and the API server tells of its address now and then.
    about = f"involvedObject.kind={KIND},involvedObject.name=llama"
    events = api.list("events", namespace, fields=f"{about},type=Warning")
    # A cause that is learnt a moment after the loss is told after it.
    assert sorted({"MemberLost", reason}) == sorted({"MemberLost", *(event["reason"] for event in events)})
    assert reason in [event["reason"] for event in events]


def test_no_new_member_appears_while_an_old_one_still_terminates(
    api: Client, namespace: str, llama: Deployed, trace: PodTrace
) -> None:
    before = llama.pods()
    play(api, namespace, LEADER, terminates_after="3s")
    api.delete("pods", WORKER, namespace)
    after = llama.wait_replaced(before)

    assert trace.companions(pod["metadata"]["uid"] for pod in after) == set()
    assert llama.group["restarts"] == 1


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_operator_killed_in_the_middle_of_the_barrier(
    *,
    writes: int,
    cluster: Cluster,
    api: Client,
    namespace: str,
    llama: Deployed,
    trace: PodTrace,
    switch: OperatorSwitch,
    operator_account: OperatorAccount,
) -> None:
    before = llama.pods()
    with switch.stopped():
        play(api, namespace, LEADER, terminates_after="2s")
        play(api, namespace, WORKER, restarts="1", last_exit_code="9")
        with operator_process(
            cluster,
            kubeconfig=operator_account.kubeconfig,
            die_after_writes=writes,
            leader_election=False,
        ) as dying:
            dying.wait_killed()
        assert llama.leader_notes()["attempt"] == "1"
        assert (llama.evidence()["nodeRank"], llama.evidence()["exitCode"]) == (1, 9)
    after = llama.wait_replaced(before)

    assert trace.companions(pod["metadata"]["uid"] for pod in after) == set()
    assert llama.group["restarts"] == 1
    assert llama.evidence()["exitCode"] == 9


@pytest.mark.parametrize("pod", [LEADER, WORKER])
def test_member_lost_while_the_operator_was_down(
    *, pod: str, api: Client, namespace: str, llama: Deployed, trace: PodTrace, switch: OperatorSwitch
) -> None:
    before = llama.pods()
    with switch.stopped():
        old = llama.uids()[pod]
        api.delete("pods", pod, namespace)
        wait_for(lambda: llama.uids().get(pod, old) != old, "its set has replaced the pod")
    after = llama.wait_replaced(before)

    assert trace.companions(p["metadata"]["uid"] for p in after) == set()
    assert (llama.evidence()["pod"], llama.evidence()["reason"]) == (pod, "MemberLost")


def test_eviction_is_refused_for_a_healthy_member_and_taken_for_another(
    api: Client, namespace: str, llama: Deployed, trace: PodTrace
) -> None:
    before = llama.pods()
    with pytest.raises(ApiError) as caught:
        evict(api, namespace, WORKER)
    assert caught.value.status == 429

    not_ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    api.patch("pods", WORKER, not_ready, namespace, subresource="status", content_type=STRATEGIC)
    evict(api, namespace, WORKER)
    after = llama.wait_replaced(before)

    assert trace.companions(p["metadata"]["uid"] for p in after) == set()
    assert (llama.evidence()["pod"], llama.evidence()["reason"]) == (WORKER, "Evicted")


def test_pod_on_a_lost_node_is_given_up_after_its_deadline(
    api: Client,
    namespace: str,
    gpu_nodes: Nodes,
    switch: OperatorSwitch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remains, "LOST_NODE_GRACE_S", 2)
    gpu_nodes("H100-SXM-80GB", 3)
    soon = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    tolerations = [{**soon, "key": f"node.kubernetes.io/{what}"} for what in ("unreachable", "not-ready")]
    spec = {**LLAMA_405B, "scheduling": {"tolerations": tolerations}}
    llama = Deployed(api, namespace, spec).create_ready()
    before = llama.pods()
    node = next(p["spec"]["nodeName"] for p in before if p["metadata"]["name"] == WORKER)
    trace = PodTrace(api, namespace)
    lose_node(api, node)
    words = f"waiting for pod {WORKER}, which node {node} does not end"
    wait_for(lambda: llama.group.get("message") == words, words, detail=lambda: llama.group)
    after = llama.wait_replaced(before)

    assert trace.companions(p["metadata"]["uid"] for p in after) == set()
    assert node not in llama.group["nodes"]
    first = llama.evidence()
    assert (first["reason"], first["node"], first["pod"]) == ("NodeLost", node, WORKER)


def test_group_waits_for_its_back_off_without_pods(api: Client, namespace: str, llama: Deployed) -> None:
    llama.edit(recovery={"backoff": "4s", "maxBackoff": "4s"})
    before = llama.pods()
    trace = PodTrace(api, namespace)
    play(api, namespace, WORKER, restarts="1")
    message = llama.wait("Ready", "False", "BackingOff")
    not_before = llama.leader_notes()["not-before"]
    assert llama.pods() == []
    after = llama.wait_replaced(before)

    assert f"restart 1 of 10 at {not_before}; first failure: a container of rank 1 ({WORKER})" in message
    assert min(pod["metadata"]["creationTimestamp"] for pod in after) >= not_before
    # On a busy controller a set that it has cached may make one more pod, which goes before the new start.
    first, *leftovers, last = (len(generation) for generation in trace.generations())
    assert (first, last, set(leftovers) <= {1}) == (2, 2, True)


def test_group_is_given_up_at_the_limit_and_tried_again_on_request(
    api: Client, namespace: str, llama: Deployed
) -> None:
    llama.edit(recovery={"maxRestarts": 1})
    before = llama.pods()
    play(api, namespace, WORKER, restarts="1", last_exit_code="3")
    again = llama.wait_replaced(before)
    api.delete("pods", LEADER, namespace)
    message = llama.wait("Stalled", "True", "RestartLimit")

    assert "given up after 1 restarts; first failure: a container of rank 1" in message
    assert "exit code 3" in message
    assert "annotation shardwright.dev/retry" in message
    assert llama.condition("Reconciling") == ("", "")
    assert (llama.group["phase"], llama.pods()) == ("Failed", [])

    api.annotate(MDEP, "llama", {"shardwright.dev/retry": "now"}, namespace)
    llama.wait_replaced(again)
    assert (llama.group["restarts"], llama.evidence()) == (0, {})
    assert llama.condition("Stalled") == ("", "")


def test_image_that_cannot_be_pulled_is_shown_and_starts_no_storm(
    api: Client, namespace: str, gpu_nodes: Nodes, switch: OperatorSwitch
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    llama = Deployed(api, namespace, LLAMA_405B)
    trace = PodTrace(api, namespace)
    with playing(api, namespace, image_pull_fails="true"):
        llama.create()
        message = llama.wait("Ready", "False", "ImagePull")
        assert llama.condition("Reconciling") == ("True", "ImagePull")
        assert llama.condition("Stalled") == ("", "")
    for pod in (LEADER, WORKER):
        play(api, namespace, pod, image_pull_fails=None)
    llama.wait_ready()

    assert f"group 0: rank 0 ({LEADER}): ImagePullBackOff: Back-off pulling image" in message
    assert [len(generation) for generation in trace.generations()] == [2]
    assert llama.group["restarts"] == 0


def test_missing_secret_is_shown_from_the_pod_s_own_state(
    api: Client, namespace: str, gpu_nodes: Nodes, switch: OperatorSwitch
) -> None:
    gpu_nodes("H100-SXM-80GB", 1)
    spec = {**LLAMA_8B, "engine": {"apiKeySecretRef": {"name": "absent", "key": "key"}}}
    llama = Deployed(api, namespace, spec)
    with playing(api, namespace, never_ready="true"):
        llama.create()
        running = wait_for(
            lambda: next((p for p in llama.pods() if p["status"].get("containerStatuses")), None), "it runs"
        )
    container = running["status"]["containerStatuses"][0]
    waiting = {"reason": "CreateContainerConfigError", "message": 'secret "absent" not found'}
    status = {**running["status"], "containerStatuses": [{**container, "state": {"waiting": waiting}}]}
    api.patch("pods", LEADER, {"status": status}, namespace, subresource="status")

    message = llama.wait("Ready", "False", "SecretMissing")
    assert message == f'group 0: rank 0 ({LEADER}): CreateContainerConfigError: secret "absent" not found'
    assert llama.uids() == {LEADER: running["metadata"]["uid"]}


def test_group_of_one_is_not_taken_down_for_a_restart_in_place(
    api: Client, namespace: str, gpu_nodes: Nodes, switch: OperatorSwitch
) -> None:
    gpu_nodes("H100-SXM-80GB", 1)
    llama = Deployed(api, namespace, LLAMA_8B).create_ready()
    uids = llama.uids()
    play(api, namespace, LEADER, restarts="1", last_exit_code="137", exit_reason="OOMKilled")
    wait_for(lambda: llama.group["restarts"] == 1, "the restart is counted")
    llama.wait_ready()

    assert llama.uids() == uids
    assert llama.group["firstFailure"]["reason"] == "OutOfMemory"


def test_lost_pod_of_a_group_of_one_is_counted_with_its_evidence(
    api: Client, namespace: str, gpu_nodes: Nodes, switch: OperatorSwitch
) -> None:
    gpu_nodes("H100-SXM-80GB", 1)
    llama = Deployed(api, namespace, LLAMA_8B).create_ready()
    before = llama.pods()
    play(api, namespace, LEADER, fails="Evicted", exit_message="low on memory")
    llama.wait_replaced(before)

    assert llama.group["restarts"] == 1
    assert (llama.evidence()["reason"], "low on memory" in llama.evidence()["message"]) == ("Evicted", True)
