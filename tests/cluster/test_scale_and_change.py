"""More and fewer groups, changed specs and their undoing: what is replaced, what stays, what never meets."""

from collections.abc import Callable

import pytest

from control_plane.client import Client, Json
from control_plane.waiting import wait_for
from deployed import (
    BUDGETS,
    FOUND_8B,
    FOUND_405B,
    NCCL_DEBUG,
    POLICIES,
    REVISIONS,
    SETS,
    Deployed,
    conditions,
    leave_no_demand,
)
from operator_process import (
    MDEP,
    crd,
    operator,
    operator_account,
)
from pod_trace import PodTrace

__all__ = ["crd", "leave_no_demand", "operator", "operator_account"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("leave_no_demand")]

served = pytest.mark.usefixtures("operator")

HARDWARE: Json = {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2}


@pytest.fixture
def nodes(gpu_nodes: Callable[..., tuple[str, ...]]) -> tuple[str, ...]:
    return gpu_nodes("H100-SXM-80GB", 2)


def groups(status: Json) -> list[tuple[int, str]]:
    return [(group["index"], group["phase"]) for group in status["groups"]]


def variable(pod: Json, name: str) -> str | None:
    found = (e.get("value") for e in pod["spec"]["containers"][0]["env"] if e["name"] == name)
    return next(found, None)


@served
def test_kubectl_scale_adds_groups_and_takes_the_last_ones_away(
    api: Client, kubectl: Callable[..., str], namespace: str, nodes: tuple[str, ...]
) -> None:
    deployment = Deployed(api, namespace, FOUND_8B).create_ready()
    first = deployment.uids()
    kubectl("scale", "mdep/llama", "--replicas=3", "-n", namespace)
    status = deployment.wait_ready()
    assert (status["ready"], status["replicas"], groups(status)) == (
        *("3/3", 3),
        [(0, "Ready"), (1, "Ready"), (2, "Ready")],
    )
    assert sorted(deployment.objects(BUDGETS)) == ["llama-0", "llama-1", "llama-2"]
    assert first.items() <= deployment.uids().items()
    kubectl("scale", "mdep/llama", "--replicas=1", "-n", namespace)
    wait_for(lambda: deployment.uids() == first, "the first group is left, untouched")
    wait_for(
        lambda: (
            {kind: sorted(deployment.objects(kind)) for kind in ("services", SETS, POLICIES, BUDGETS)}
            == {
                "services": ["llama", "llama-0-ranks"],
                SETS: ["llama-0-leader"],
                POLICIES: ["llama-0"],
                BUDGETS: ["llama-0"],
            }
        ),
        "the children of the others are gone",
    )
    assert deployment.wait_ready()["replicas"] == 1


@served
def test_two_groups_of_two_nodes_each(
    api: Client, namespace: str, gpu_nodes: Callable[..., tuple[str, ...]]
) -> None:
    gpu_nodes("H100-SXM-80GB", 4)
    deployment = Deployed(api, namespace, {**FOUND_405B, "replicas": 2}).create()
    status = deployment.wait_ready(timeout_s=60)
    places = [set(group["nodes"]) for group in status["groups"]]
    assert [len(place) for place in places] == [2, 2]
    assert places[0].isdisjoint(places[1])


@served
def test_scaled_to_zero_and_back_with_the_same_revision(
    api: Client, kubectl: Callable[..., str], namespace: str, nodes: tuple[str, ...]
) -> None:
    deployment = Deployed(api, namespace, FOUND_405B).create()
    before = deployment.wait_ready()
    trace = PodTrace(api, namespace)
    kubectl("scale", "mdep/llama", "--replicas=0", "-n", namespace)
    deployment.wait("Ready", "True", "ScaledToZero")
    status = deployment.status
    assert (status["ready"], status["replicas"]) == ("0/0", 0)
    wait_for(lambda: not deployment.pods(), "no pod is left")
    kubectl("scale", "mdep/llama", "--replicas=1", "-n", namespace)
    after = deployment.wait_ready()
    assert (after["revision"], after["plan"]) == (before["revision"], before["plan"])
    assert [len(life) for life in trace.lives()] == [2, 2]


@served
def test_the_scale_subresource_counts_groups_and_selects_their_leaders(
    api: Client, namespace: str, nodes: tuple[str, ...]
) -> None:
    Deployed(api, namespace, FOUND_405B).create_ready()
    path = f"/apis/shardwright.dev/v1alpha1/namespaces/{namespace}/modeldeployments/llama/scale"
    scale = api.request("GET", path)
    selected = api.list("pods", namespace, labels=scale["status"]["selector"])
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (1, 1)
    assert [pod["metadata"]["name"] for pod in selected] == ["llama-0-leader-0"]


@served
def test_more_groups_than_nodes_hold_wait_and_the_others_serve(
    api: Client, namespace: str, nodes: tuple[str, ...]
) -> None:
    deployment = Deployed(api, namespace, {**FOUND_405B, "replicas": 2}).create()
    status = deployment.wait_status(
        lambda s: conditions(s).get("Available", ("",))[0] == "True" and s["ready"] == "1/2",
        "one of two serves",
    )
    assert conditions(status)["Ready"][0] == "False"
    assert groups(status)[0] == (0, "Ready")


@served
def test_an_edit_of_the_environment_keeps_the_topology_and_replaces_the_group_once(
    api: Client, namespace: str, nodes: tuple[str, ...]
) -> None:
    deployment = Deployed(api, namespace, FOUND_405B).create()
    before = deployment.wait_ready()
    trace = PodTrace(api, namespace)
    deployment.edit(engine=NCCL_DEBUG)
    after = deployment.wait_ready()
    assert after["plan"] == before["plan"]
    assert {variable(pod, "NCCL_DEBUG") for pod in deployment.pods()} == {"INFO"}
    assert [len(life) for life in trace.lives()] == [2, 2]
    assert after["groups"][0]["restarts"] == 0
    assert len(deployment.objects(REVISIONS)) == 2


@served
def test_groups_are_replaced_one_after_the_other(api: Client, namespace: str, nodes: tuple[str, ...]) -> None:
    deployment = Deployed(api, namespace, {**FOUND_8B, "replicas": 2}).create_ready()
    trace = PodTrace(api, namespace)
    deployment.edit(engine=NCCL_DEBUG)
    deployment.wait_ready()
    # No group goes before the one that went first is back.
    story = [("+" if event.change == "ADDED" else "-") + event.group for event in trace.comings_and_goings()]
    one_way, other_way = ["-0", "+0", "-1", "+1"], ["-1", "+1", "-0", "+0"]
    assert story in (one_way, other_way)


@served
def test_an_edit_of_the_service_level_alone_restarts_nothing(
    api: Client, namespace: str, nodes: tuple[str, ...]
) -> None:
    deployment = Deployed(api, namespace, FOUND_405B).create_ready()
    uids = deployment.uids()
    deployment.edit(slo={"timePerOutputToken": "1ms"})
    status = deployment.wait_status(
        lambda s: conditions(s)["SLOPredicted"][0] == "False", "it is judged anew"
    )
    assert (conditions(status)["Ready"][0], deployment.uids()) == ("True", uids)


@served
def test_another_model_takes_another_plan_and_leaves_no_worker_set(
    api: Client, namespace: str, nodes: tuple[str, ...]
) -> None:
    deployment = Deployed(api, namespace, FOUND_405B).create_ready()
    trace = PodTrace(api, namespace)
    deployment.edit(model=FOUND_8B["model"])
    status = deployment.wait_ready()
    wait_for(lambda: sorted(deployment.objects(SETS)) == ["llama-0-leader"], "the worker set is gone")
    assert (status["plan"]["gpusPerReplica"], [len(life) for life in trace.lives()]) == (1, [2, 1])


@served
def test_fewer_nodes_than_the_model_needs_are_refused_and_the_old_plan_runs_on(
    api: Client, namespace: str, nodes: tuple[str, ...]
) -> None:
    deployment = Deployed(api, namespace, {**FOUND_405B, "hardware": HARDWARE}).create()
    before = deployment.wait_ready()
    uids = deployment.uids()
    deployment.edit(hardware={"maxNodes": 1})
    deployment.wait("PlanAccepted", "False", "DoesNotFit")
    status = deployment.status
    assert (status["plan"], status["ready"], deployment.uids()) == (before["plan"], "1/1", uids)
    deployment.edit(hardware={"maxNodes": 2})
    after = deployment.wait_ready()
    assert (after["revision"], deployment.uids()) == (before["revision"], uids)


@served
def test_more_gpus_for_the_model_by_a_pin_and_back(
    api: Client, namespace: str, nodes: tuple[str, ...]
) -> None:
    deployment = Deployed(api, namespace, FOUND_8B).create_ready()
    trace = PodTrace(api, namespace)
    deployment.edit(parallelism={"tensor": 4, "pipeline": 2})
    pinned = deployment.wait_ready()["plan"]
    deployment.edit(parallelism=None)
    free = deployment.wait_ready()["plan"]
    sizes = [len(life) for life in trace.lives()]
    shapes = [(p["tensorParallel"], p["pipelineParallel"]) for p in (pinned, free)]
    assert shapes == [(4, 2), (1, 1)]
    assert sizes == [1, pinned["nodes"], 1]


@served
def test_an_edit_undone_comes_back_to_the_first_revision(
    api: Client, namespace: str, nodes: tuple[str, ...]
) -> None:
    deployment = Deployed(api, namespace, FOUND_405B).create()
    before = deployment.wait_ready()
    deployment.edit(engine=NCCL_DEBUG)
    deployment.wait_ready()
    deployment.edit(engine=None)
    after = deployment.wait_ready()
    assert (after["revision"], len(deployment.objects(REVISIONS))) == (before["revision"], 2)


@served
def test_paused_changes_wait_until_it_goes_on(api: Client, namespace: str, nodes: tuple[str, ...]) -> None:
    deployment = Deployed(api, namespace, FOUND_405B).create_ready()
    uids = deployment.uids()
    deployment.edit(rollout={"paused": True}, engine=NCCL_DEBUG)
    deployment.wait("Ready", "False", "Paused")
    status = deployment.status
    assert (deployment.uids(), status["ready"]) == (uids, "1/1")
    deployment.edit(rollout={"paused": False})
    deployment.wait_ready()
    assert set(deployment.uids().values()).isdisjoint(uids.values())


@served
def test_a_resource_deleted_and_made_anew_has_nothing_of_the_old_one(
    api: Client, namespace: str, nodes: tuple[str, ...]
) -> None:
    deployment = Deployed(api, namespace, FOUND_405B).create_ready()
    trace = PodTrace(api, namespace)
    api.delete(MDEP, "llama", namespace)
    deployment.create_ready()
    assert [len(life) for life in trace.lives()] == [2, 2]
    owner = deployment.live["metadata"]["uid"]
    wait_for(
        lambda: (
            {o["metadata"]["ownerReferences"][0]["uid"] for o in deployment.objects(SETS).values()} == {owner}
        ),
        "both sets are the new one's",
    )
