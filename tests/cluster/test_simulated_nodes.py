"""Simulated nodes and pods fail, end and come back as real ones do, as far as other tests rely on it."""

from collections.abc import Callable

import pytest

from control_plane import Client, Json, wait_for
from control_plane.faults import play, playing
from control_plane.nodes import cordon, delete_nodes, lose_node, restore_node, taint, untaint

pytestmark = pytest.mark.cluster

Nodes = Callable[..., tuple[str, ...]]


def stateful_set(
    name: str, *, replicas: int, first: int = 0, gpus: int = 8, labels: Json | None = None
) -> Json:
    """The shape of a group's worker set: the pod's own index is its node rank."""
    pod_labels = {"app": name, **(labels or {})}
    spread: Json = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    container = {
        "name": "engine",
        "image": "engine.invalid/engine:1",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "ordinals": {"start": first},
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": pod_labels},
                "spec": {"affinity": spread, "containers": [container]},
            },
        },
    }


def condition(item: Json, kind: str) -> str | None:
    """Status of one condition."""
    found: dict[str, str] = {c["type"]: c["status"] for c in item["status"].get("conditions", ())}
    return found.get(kind)


def ready_pods(api: Client, namespace: str) -> dict[str, Json]:
    """Pods by name, those that are Ready."""
    pods = api.list("pods", namespace)
    return {pod["metadata"]["name"]: pod for pod in pods if condition(pod, "Ready") == "True"}


def one_ready_pod(api: Client, namespace: str) -> Json:
    """Create a set of one pod and return the pod when it is Ready."""
    api.apply(stateful_set("solo", replicas=1), namespace)
    return wait_for(lambda: ready_pods(api, namespace).get("solo-0"), "solo-0 is Ready")


def container_status(api: Client, namespace: str, pod: str) -> Json:
    """Status of a pod's first container."""
    statuses: list[Json] = api.get("pods", pod, namespace)["status"].get("containerStatuses", [{}])
    return statuses[0]


def test_nodes_are_ready_with_gpus_and_discovery_labels(api: Client, gpu_nodes: Nodes) -> None:
    names = gpu_nodes("H100-SXM-80GB", 2)
    nodes = [api.get("nodes", name) for name in names]
    assert [condition(node, "Ready") for node in nodes] == ["True", "True"]
    assert [node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes] == ["8", "8"]
    labels: Json = nodes[0]["metadata"]["labels"]
    wanted = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.family": "hopper",
        "kubernetes.io/hostname": names[0],
    }
    assert {key: labels.get(key) for key in wanted} == wanted


def test_set_with_ordinals_from_one_spreads_over_gpu_nodes(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes(count=2)
    api.apply(stateful_set("worker", replicas=2, first=1), namespace)
    pods = wait_for(
        lambda: pods if len(pods := ready_pods(api, namespace)) == 2 else None,
        "both pods are Ready",
        detail=lambda: api.list("pods", namespace),
    )
    assert sorted(pods) == ["worker-1", "worker-2"]
    assert len({pod["spec"]["nodeName"] for pod in pods.values()}) == 2
    label = "apps.kubernetes.io/pod-index"
    assert {name: pod["metadata"]["labels"][label] for name, pod in pods.items()} == {
        "worker-1": "1",
        "worker-2": "2",
    }
    wait_for(
        lambda: api.get("statefulsets.apps", "worker", namespace)["status"].get("readyReplicas") == 2,
        "the set counts both as ready",
    )


def test_restart_in_place_counts_and_keeps_the_exit(api: Client, namespace: str, gpu_nodes: Nodes) -> None:
    gpu_nodes(count=1)
    before = one_ready_pod(api, namespace)
    play(api, namespace, "solo-0", restarts="2", last_exit_code="137", exit_reason="OOMKilled")
    status = wait_for(
        lambda: s if (s := container_status(api, namespace, "solo-0"))["restartCount"] == 2 else None,
        "the container was restarted twice",
    )
    after = api.get("pods", "solo-0", namespace)
    ended = status["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
    assert "running" in status["state"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert condition(after, "Ready") == "True"


def test_exited_container_stays_ended_until_it_is_restarted(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes(count=1)
    one_ready_pod(api, namespace)
    play(api, namespace, "solo-0", exit_code="3", exit_message="no NCCL peer")
    status = wait_for(
        lambda: s if "terminated" in (s := container_status(api, namespace, "solo-0"))["state"] else None,
        "the container ended",
    )
    ended = status["state"]["terminated"]
    assert (ended["exitCode"], ended["message"], status["ready"]) == (3, "no NCCL peer", False)
    assert condition(api.get("pods", "solo-0", namespace), "Ready") == "False"
    play(api, namespace, "solo-0", exit_code=None, restarts="1", last_exit_code="3")
    wait_for(
        lambda: (
            container_status(api, namespace, "solo-0")["restartCount"] == 1
            and "solo-0" in ready_pods(api, namespace)
        ),
        "the container runs again",
    )


def test_failed_pod_is_replaced_by_its_set(api: Client, namespace: str, gpu_nodes: Nodes) -> None:
    gpu_nodes(count=1)
    before = one_ready_pod(api, namespace)
    play(api, namespace, "solo-0", fails="Evicted")
    wait_for(
        lambda: (
            (pod := ready_pods(api, namespace).get("solo-0"))
            and pod["metadata"]["uid"] != before["metadata"]["uid"]
        ),
        "the set made a new pod",
    )


@pytest.mark.parametrize(
    ("course", "reached"),
    [
        pytest.param({"never_ready": "true"}, ("Running", False, None), id="never ready"),
        pytest.param(
            {"image_pull_fails": "true"}, ("Pending", False, "ImagePullBackOff"), id="image pull back-off"
        ),
    ],
)
def test_course_of_pods_to_come_is_set_by_their_labels(
    api: Client,
    namespace: str,
    gpu_nodes: Nodes,
    course: dict[str, str],
    reached: tuple[str, bool, str | None],
) -> None:
    gpu_nodes(count=2)

    def seen() -> tuple[str, bool, str | None]:
        pod = api.get("pods", "worker-1", namespace)
        status = pod["status"]["containerStatuses"][0] if "containerStatuses" in pod["status"] else {}
        reason = status.get("state", {}).get("waiting", {}).get("reason")
        return pod["status"]["phase"], status.get("ready", False), reason

    with playing(api, namespace, {"role": "worker"}, **course):
        api.apply(stateful_set("leader", replicas=1, labels={"role": "leader"}), namespace)
        api.apply(stateful_set("worker", replicas=1, first=1, labels={"role": "worker"}), namespace)
        wait_for(lambda: seen() == reached, f"the worker reaches {reached}", detail=seen)
        wait_for(lambda: "leader-0" in ready_pods(api, namespace), "the leader is not touched")
    template = api.get("statefulsets.apps", "worker", namespace)["spec"]["template"]
    assert "annotations" not in template["metadata"]


def test_slow_pod_is_ready_only_after_its_time(api: Client, namespace: str, gpu_nodes: Nodes) -> None:
    gpu_nodes(count=1)
    with playing(api, namespace, ready_after="2s"):
        api.apply(stateful_set("solo", replicas=1), namespace)
        wait_for(lambda: container_status(api, namespace, "solo-0").get("state"), "the container runs")
        assert ready_pods(api, namespace) == {}
        wait_for(lambda: "solo-0" in ready_pods(api, namespace), "solo-0 is Ready")


def test_slowly_terminating_pod_is_replaced_only_when_gone(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes(count=1)
    before = one_ready_pod(api, namespace)
    play(api, namespace, "solo-0", terminates_after="1s")
    api.delete("pods", "solo-0", namespace)
    dying = api.get("pods", "solo-0", namespace)
    assert dying["metadata"]["uid"] == before["metadata"]["uid"]
    assert "deletionTimestamp" in dying["metadata"]
    wait_for(
        lambda: (
            (pod := ready_pods(api, namespace).get("solo-0"))
            and pod["metadata"]["uid"] != before["metadata"]["uid"]
        ),
        "a new pod is Ready",
    )


def test_lost_node_makes_its_pods_not_ready_until_it_is_back(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    (node,) = gpu_nodes(count=1)
    one_ready_pod(api, namespace)
    lose_node(api, node)
    wait_for(lambda: not ready_pods(api, namespace), "the pod is not Ready")
    keys = wait_for(
        lambda: {entry["key"] for entry in api.get("nodes", node)["spec"].get("taints", ())},
        "the node is tainted",
    )
    assert "node.kubernetes.io/unreachable" in keys
    restore_node(api, node)
    wait_for(lambda: "solo-0" in ready_pods(api, namespace), "the pod is Ready again")


def test_cordoned_and_tainted_nodes_take_no_pods(api: Client, namespace: str, gpu_nodes: Nodes) -> None:
    cordoned, tainted = gpu_nodes(count=2)
    cordon(api, cordoned)
    taint(api, tainted, "example.com/reserved", "NoSchedule")
    api.apply(stateful_set("solo", replicas=1), namespace)
    wait_for(
        lambda: condition(api.get("pods", "solo-0", namespace), "PodScheduled") == "False",
        "the scheduler finds no node",
    )
    untaint(api, tainted, "example.com/reserved")
    pod = wait_for(lambda: ready_pods(api, namespace).get("solo-0"), "solo-0 is Ready")
    assert pod["spec"]["nodeName"] == tainted


def test_deleted_nodes_leave_no_pods(api: Client, namespace: str, gpu_nodes: Nodes) -> None:
    (node,) = gpu_nodes(count=1)
    one_ready_pod(api, namespace)
    delete_nodes(api, [node])
    assert api.find("nodes", node) is None
    assert api.list("pods", namespace, fields=f"spec.nodeName={node}") == []
