"""The control plane itself: what the other cluster tests take for granted."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from control_plane import ApiError, Client, Cluster, ControlPlane, Json, read_audit, wait_for
from control_plane.audit import Right, account_user, count_by_kind, now, rights_used
from control_plane.cluster import GIVEN_KUBECONFIG, CommandError
from control_plane.faults import play, playing
from control_plane.folders import State, read_state
from control_plane.nodes import cordon, delete_nodes, lose_node, make_nodes, restore_node, taint, untaint
from control_plane.processes import stop_processes

pytestmark = pytest.mark.cluster

local_only = pytest.mark.skipif(
    GIVEN_KUBECONFIG in os.environ,
    reason="starts control planes of its own, or asks for the local one's set-up",
)

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


@local_only
def test_server_says_the_version_that_go_mod_pins(kubectl: Callable[..., str]) -> None:
    assert "Server Version: v1.36.3" in kubectl("version")


def test_kubectl_failure_carries_what_it_wrote_to_stderr(kubectl: Callable[..., str]) -> None:
    with pytest.raises(CommandError, match=r'namespaces "absent" not found'):
        kubectl("get", "namespace", "absent")


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


def test_account_token_has_the_accounts_rights_and_the_log_shows_them(
    cluster: Cluster, api: Client, namespace: str
) -> None:
    if cluster.audit_log is None:
        pytest.skip("the given cluster's audit log cannot be read")
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch"]}
    rbac = "rbac.authorization.k8s.io"
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "probe"}}, namespace)
    api.create(
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "probe"}, "rules": [rule]},
        namespace,
    )
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "probe"},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "probe"},
        "subjects": [{"kind": "ServiceAccount", "name": "probe", "namespace": namespace}],
    }
    api.create(binding, namespace)
    kubeconfig = cluster.account_kubeconfig(namespace, "probe")
    config_map: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}}
    client = cluster.client(cluster.account_token(namespace, "probe"))
    since = now()
    try:
        wait_for(lambda: client.apply(config_map, namespace), "the binding is in force")
        client.apply({**config_map, "data": {"a": "1"}}, namespace)
        with pytest.raises(ApiError) as refused:
            client.list("secrets", namespace)
    finally:
        client.close()
    assert refused.value.reason == "Forbidden"
    cluster.kubectl("get", "configmap", "made", "-n", namespace, kubeconfig=kubeconfig)

    user = account_user(namespace, "probe")
    events = read_audit(cluster.audit_log, user=user, since=since, namespace=namespace)
    allowed = [event for event in events if event.code < 400]
    counts = count_by_kind(allowed)
    assert (counts["patch", "configmaps"], counts["get", "configmaps"]) == (2, 1)
    assert rights_used(allowed) == {
        Right("", "configmaps", "get"),
        Right("", "configmaps", "create"),
        Right("", "configmaps", "patch"),
    }
    assert [event.code for event in events if event.resource == "secrets"] == [403]


@local_only
def test_owner_may_not_be_blocked_by_who_may_not_touch_it(
    cluster: Cluster, api: Client, namespace: str
) -> None:
    """OwnerReferencesPermissionEnforcement is on: it is what OpenShift runs."""
    rbac = "rbac.authorization.k8s.io"
    owner = api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}, namespace)
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "child"}}, namespace)
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}
    api.create(
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "child"}, "rules": [rule]},
        namespace,
    )
    api.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "child"},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "child"},
            "subjects": [{"kind": "ServiceAccount", "name": "child", "namespace": namespace}],
        },
        namespace,
    )
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": True,
    }
    client = cluster.client(cluster.account_token(namespace, "child"))

    def refusal() -> str | None:
        metadata: Json = {"generateName": "child-", "ownerReferences": [reference]}
        try:
            client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}, namespace)
        except ApiError as error:
            return error.message if "blockOwnerDeletion" in error.message else None
        return None

    try:
        assert "cannot set blockOwnerDeletion" in wait_for(refusal, "the admission plugin refuses")
    finally:
        client.close()


def test_pod_security_refuses_what_the_namespace_forbids(
    api: Client, make_namespace: Callable[..., str]
) -> None:
    name = make_namespace(labels={"pod-security.kubernetes.io/enforce": "restricted"})
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "free"},
        "spec": {"containers": [{"name": "c", "image": "i.invalid/i"}]},
    }
    with pytest.raises(ApiError, match='violates PodSecurity "restricted:latest"'):
        api.create(pod, name)


@local_only
def test_servers_that_end_are_started_again_and_know_what_they_knew() -> None:
    with ControlPlane() as other:
        client = other.cluster.client()
        client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}})
        other.restart("kube-apiserver")
        assert client.get("namespaces", "kept")["metadata"]["name"] == "kept"
        stop_processes([process for process in other.processes if process.name == "kube-scheduler"])
        assert other.revive() == ("kube-scheduler",)
        assert other.revive() == ()
        client.close()


@local_only
def test_two_control_planes_do_not_collide(cluster: Cluster, api: Client) -> None:
    with ControlPlane() as other:
        client = other.cluster.client()
        try:
            name = client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "only-here"}})
            assert name["metadata"]["name"] == "only-here"
            assert api.find("namespaces", "only-here") is None
            assert make_nodes(client, count=1, prefix="other") == ("other-0",)
        finally:
            client.close()
        processes, folder = other.processes, other.folder
        assert len(processes) == 5
    assert not any(process.is_running() for process in processes)
    assert not folder.exists()


ORPHANING = """
import sys, time
from pathlib import Path
from control_plane import ControlPlane
ControlPlane(Path(sys.argv[1])).start()
print("up", flush=True)
time.sleep(600)
"""


@local_only
def test_servers_die_with_a_killed_parent(tmp_path: Path) -> None:
    folder = tmp_path / "plane"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", ORPHANING, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        state = read_state(folder)
        parent.send_signal(signal.SIGKILL)
    assert isinstance(state, State)
    assert len(state.processes) == 5
    wait_for(lambda: not any(process.is_running() for process in state.processes), "no server runs")
    assert not state.owner.is_running()


@local_only
def test_kept_cluster_outlives_its_starter_and_is_stopped_by_name() -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    name = f"test-{os.getpid()}"

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "control_plane", *arguments, "--name", name]
        return subprocess.run(
            program, capture_output=True, text=True, env=environment, check=False, timeout=120
        )

    up = command("up", "--nodes", "1", "--gpu", "L4")
    try:
        assert up.returncode == 0, up.stderr
        assert up.stdout == command("env").stdout
        assert command("status").stdout.count("running") == 5
        kubeconfig = Path(up.stdout.removeprefix("export KUBECONFIG=").strip())
        state = read_state(kubeconfig.parent)
    finally:
        down = command("down")
    assert down.returncode == 0
    assert state is not None
    assert not any(process.is_running() for process in state.processes)
    assert command("status").returncode == 1
