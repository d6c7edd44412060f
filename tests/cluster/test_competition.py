"""Resources that want the same GPUs, on a real scheduler: whole groups, turns, priorities and preemption."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from control_plane.client import Client, Json
from control_plane.waiting import wait_for
from deployed import LLAMA_405B, Deployed, leave_no_demand
from operator_process import MDEP, crd, operator, operator_account
from pod_trace import PodTrace
from shardwright_operator.decide import admission

__all__ = ["crd", "leave_no_demand", "operator", "operator_account"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator", "leave_no_demand")]

Nodes = Callable[..., tuple[str, ...]]
CLASSES = "priorityclasses.scheduling.k8s.io"

LLAMA_70B: Json = {
    "model": {"name": "meta-llama/Llama-3.1-70B-Instruct"},
    "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 1},
    "parallelism": {"tensor": 8},
}
"""One pod with all GPUs of a node."""


@pytest.fixture
def urgent(api: Client) -> Iterator[str]:
    """Name of a PriorityClass above all others of the tests."""
    name = f"urgent-{uuid.uuid4().hex[:6]}"
    api.create(priority_class(name))
    yield name
    api.delete(CLASSES, name)


def priority_class(name: str) -> Json:
    header = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    return {**header, "value": 1000}


def nodes_of(deployed: Deployed) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in deployed.pods()]


def test_of_two_that_want_the_same_nodes_one_runs_and_the_other_follows(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes("H100-SXM-80GB", 3)
    pair = [Deployed(api, namespace, LLAMA_405B, name=name).create() for name in ("alpha", "beta")]
    wait_for(
        lambda: [d for d in pair if d.condition("Ready")[0] == "True"],
        "one of them runs",
        detail=lambda: "\n".join(d.describe() for d in pair),
    )
    first, second = sorted(pair, key=lambda d: d.condition("Ready")[0] != "True")
    message = second.wait("Ready", "False", "WaitingForCapacity")
    assert "GPUs are missing" in message
    api.delete(MDEP, first.name, namespace)
    second.wait_ready()
    assert len(set(nodes_of(second))) == 2
    assert second.group["restarts"] == 0


def test_a_higher_priority_preempts_a_whole_group_that_has_not_failed(
    api: Client, namespace: str, gpu_nodes: Nodes, urgent: str
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    usual = Deployed(api, namespace, LLAMA_405B, name="usual").create_ready()
    old, trace = set(usual.uids().values()), PodTrace(api, namespace)
    spec = {**LLAMA_405B, "scheduling": {"priorityClassName": urgent}}
    Deployed(api, namespace, spec, name="preempting").create_ready()
    usual.wait("Ready", "False", "WaitingForCapacity")
    assert "Preempted" in usual.reasons()
    assert set(nodes_of(usual)) <= {""}
    api.delete(MDEP, "preempting", namespace)
    usual.wait_ready()
    group = usual.group
    assert (group["restarts"], group.get("firstFailure")) == (0, None)
    assert trace.companions(usual.uids().values()).isdisjoint(old)


def test_a_small_one_does_not_take_what_a_higher_priority_waits_for(
    api: Client, namespace: str, gpu_nodes: Nodes, urgent: str
) -> None:
    gpu_nodes("H100-SXM-80GB", 1)
    scheduling = {"priorityClassName": urgent}
    first, second = (
        Deployed(api, namespace, {**LLAMA_405B, "scheduling": scheduling}, name=name).create()
        for name in ("first", "second")
    )
    first.wait("Ready", "False", "WaitingForCapacity")
    second.wait("Ready", "False", "WaitingForCapacity")
    small = Deployed(api, namespace, LLAMA_70B, name="small").create()
    small.wait("Ready", "False", "WaitingForCapacity")
    gpu_nodes("H100-SXM-80GB", 2)
    first.wait_ready()
    message = small.wait("Ready", "False", "WaitingForCapacity")
    assert "models/" not in message
    assert message.endswith("of a higher priority, comes first")
    assert small.pods() == []
    gpu_nodes("H100-SXM-80GB", 2)
    second.wait_ready()
    small.wait_ready()


def test_a_class_that_is_not_there_is_named_until_it_is(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    name = f"late-{uuid.uuid4().hex[:6]}"
    llama = Deployed(api, namespace, {**LLAMA_405B, "scheduling": {"priorityClassName": name}}).create()
    message = llama.wait("Stalled", "True", "InvalidSpec")
    assert f"priorityClassName is '{name}', but the cluster has no such PriorityClass; create it" in message
    assert "system-node-critical" in message
    assert llama.pods() == []
    api.create(priority_class(name))
    llama.wait_ready()
    api.delete(CLASSES, name)


def test_half_a_group_gives_its_node_back_to_one_that_can_run_on_it(
    api: Client, namespace: str, gpu_nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "RELEASE_S", 3.0)
    gpu_nodes("H100-SXM-80GB", 1)
    half = Deployed(api, namespace, LLAMA_405B, name="half").create()
    half.wait("Ready", "False", "WaitingForCapacity")
    whole = Deployed(api, namespace, LLAMA_70B, name="whole").create()
    # A group that has half of its nodes is looked at again after half a minute.
    whole.wait_ready(timeout_s=90)
    told = [e["message"] for e in half.events() if e["reason"] == "WaitingForCapacity"]
    assert any("gives its nodes back, because" in text and "whole can run on them" in text for text in told)
    assert half.group["restarts"] == 0
