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
from control_plane.folders import State, read_state
from control_plane.nodes import make_nodes
from control_plane.processes import stop_processes

pytestmark = pytest.mark.cluster

local_only = pytest.mark.skipif(
    GIVEN_KUBECONFIG in os.environ,
    reason="starts control planes of its own, or asks for the local one's set-up",
)


@local_only
def test_server_says_the_version_that_go_mod_pins(kubectl: Callable[..., str]) -> None:
    assert "Server Version: v1.36.3" in kubectl("version")


def test_kubectl_failure_carries_what_it_wrote_to_stderr(kubectl: Callable[..., str]) -> None:
    with pytest.raises(CommandError, match=r'namespaces "absent" not found'):
        kubectl("get", "namespace", "absent")


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
