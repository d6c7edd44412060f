"""Deletion never hangs and never leaves anything behind: owner references do it, no finalizer is involved."""

from collections.abc import Callable

import pytest

from control_plane.client import Client, Json
from control_plane.faults import play
from control_plane.waiting import wait_for
from deployed import (
    CHILD_RESOURCES,
    LEADER,
    LLAMA_405B,
    WORKER,
    Deployed,
    OperatorSwitch,
    collected,
    switch,
)
from operator_process import MDEP, crd, operator_account
from pod_trace import PodTrace

__all__ = ["collected", "crd", "operator_account", "switch"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("collected")]

Nodes = Callable[..., tuple[str, ...]]


@pytest.fixture
def llama(api: Client, namespace: str, gpu_nodes: Nodes, switch: OperatorSwitch) -> Deployed:
    """A group of two pods that is Ready."""
    gpu_nodes("H100-SXM-80GB", 2)
    return Deployed(api, namespace, LLAMA_405B).create_ready()


def everything(api: Client, namespace: str) -> list[Json]:
    resources = (*CHILD_RESOURCES, "pods", MDEP)
    return [item for resource in resources for item in api.list(resource, namespace)]


def test_no_object_of_ours_has_a_finalizer(api: Client, namespace: str, llama: Deployed) -> None:
    found = {
        f"{item.get('kind', '')} {item['metadata']['name']}": item["metadata"]["finalizers"]
        for item in everything(api, namespace)
        if item["metadata"].get("finalizers")
    }

    assert found == {}
    assert len(llama.children()) >= 7


@pytest.mark.parametrize("cascade", ["background", "foreground"])
@pytest.mark.parametrize(
    "up", [pytest.param(True, id="operator up"), pytest.param(False, id="operator down")]
)
def test_delete_removes_everything(
    *,
    cascade: str,
    up: bool,
    kubectl: Callable[..., str],
    namespace: str,
    llama: Deployed,
    switch: OperatorSwitch,
) -> None:
    if up:
        kubectl("delete", "mdep", "llama", "-n", namespace, f"--cascade={cascade}")
        llama.wait_gone()
    else:
        with switch.stopped():
            kubectl("delete", "mdep", "llama", "-n", namespace, f"--cascade={cascade}")
            llama.wait_gone()


@pytest.mark.parametrize(
    "up", [pytest.param(True, id="operator up"), pytest.param(False, id="operator down")]
)
def test_namespace_is_gone_within_seconds(
    *, up: bool, api: Client, namespace: str, llama: Deployed, switch: OperatorSwitch
) -> None:
    if not up:
        switch.down()
    try:
        api.delete("namespaces", namespace)
        wait_for(lambda: api.find("namespaces", namespace) is None, "the namespace is gone", timeout_s=20)
    finally:
        switch.up()


def test_namespace_of_a_group_that_is_being_restarted_is_gone_within_seconds(
    api: Client, namespace: str, llama: Deployed
) -> None:
    play(api, namespace, WORKER, restarts="1")
    api.delete("namespaces", namespace)

    wait_for(lambda: api.find("namespaces", namespace) is None, "the namespace is gone", timeout_s=20)


def test_same_name_again_waits_for_the_old_children_and_pods(
    api: Client, namespace: str, llama: Deployed
) -> None:
    before = llama.pods()
    old_uid = llama.live["metadata"]["uid"]
    trace = PodTrace(api, namespace)
    for pod in (LEADER, WORKER):
        play(api, namespace, pod, terminates_after="3s")
    api.delete(MDEP, "llama", namespace, propagation="Background")
    again = Deployed(api, namespace, LLAMA_405B).create()
    after = again.wait_replaced(before)

    assert trace.companions(pod["metadata"]["uid"] for pod in after) == set()
    owners = {o["uid"] for child in again.children() for o in child["metadata"].get("ownerReferences", ())}
    assert old_uid not in owners
    assert again.live["metadata"]["uid"] in owners
    assert again.group["restarts"] == 0
    assert again.condition("Stalled") == ("", "")


def test_orphans_are_named_and_never_adopted(
    api: Client, kubectl: Callable[..., str], namespace: str, llama: Deployed
) -> None:
    before = {child["metadata"]["uid"] for child in llama.children()}
    pods = llama.uids()
    kubectl("delete", "mdep", "llama", "-n", namespace, "--cascade=orphan")
    again = Deployed(api, namespace, LLAMA_405B).create()
    message = again.wait("Stalled", "True", "NameConflict")

    assert "carries this resource's label but has no owner; delete it" in message
    orphans = again.children()
    assert {child["metadata"]["uid"] for child in orphans} == before
    assert [c["metadata"]["name"] for c in orphans if c["metadata"].get("ownerReferences")] == []
    assert again.uids() == pods

    for resource in CHILD_RESOURCES:
        kubectl(
            "delete",
            resource,
            "-n",
            namespace,
            "-l",
            "shardwright.dev/model-deployment=llama",
            "--wait=false",
        )
    again.wait_ready()
    assert {child["metadata"]["uid"] for child in again.children()}.isdisjoint(before)


def test_scaling_down_removes_the_groups_beyond(gpu_nodes: Nodes, llama: Deployed) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    llama.edit(replicas=2)
    llama.wait_ready()
    llama.edit(replicas=1)
    llama.wait_ready()

    def remaining() -> set[str]:
        return {str(child["metadata"]["name"]) for child in (*llama.children(), *llama.pods())}

    wait_for(
        lambda: not any(f"{name}-".startswith("llama-1-") for name in remaining()),
        "group 1 is gone",
        detail=remaining,
    )
    assert {LEADER, WORKER} <= remaining()
