"""A tool that applies the same again and again, and people beside it: the operator takes no part in that."""

import time
from collections.abc import Callable
from datetime import datetime

import pytest

from control_plane import audit
from control_plane.client import Client, Json
from control_plane.cluster import Cluster
from control_plane.waiting import wait_for
from deployed import LLAMA_8B, Deployed
from gitops_loop import GitOpsLoop
from operator_process import OperatorAccount, crd, operator, operator_account

__all__ = ["crd", "operator", "operator_account"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

WAYS = [pytest.param("server", id="server-side"), pytest.param("client", id="client-side")]
ROUNDS = 5


@pytest.fixture
def llama(api: Client, namespace: str, gpu_nodes: Callable[..., object]) -> Deployed:
    """A resource that is not made yet, and GPUs for eight groups."""
    gpu_nodes("H100-SXM-80GB", 1)
    return Deployed(api, namespace, LLAMA_8B)


def in_git(llama: Deployed, **spec: Json | int) -> Json:
    return {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": llama.name, "namespace": llama.namespace},
        "spec": {**LLAMA_8B, **spec},
    }


def wait_rounds(loop: GitOpsLoop, rounds: int = ROUNDS) -> None:
    target = loop.rounds + rounds
    wait_for(lambda: loop.rounds >= target, f"{rounds} more rounds", timeout_s=60)


def writes(cluster: Cluster, account: OperatorAccount, llama: Deployed, since: datetime) -> list[str]:
    """What the operator wrote; Events come late and are no part of it."""
    assert cluster.audit_log is not None
    found = audit.read_audit(
        cluster.audit_log,
        user=account.user,
        since=since,
        namespace=llama.namespace,
        verbs=audit.WRITE_VERBS,
        leases=False,
    )
    return [f"{w.verb} {w.full_resource} {w.name}" for w in found if w.resource != "events"]


@pytest.mark.parametrize("way", WAYS)
def test_applying_the_same_again_causes_no_write_and_no_restart(
    cluster: Cluster, llama: Deployed, operator_account: OperatorAccount, way: str
) -> None:
    with GitOpsLoop(cluster, in_git(llama), way) as loop:
        llama.wait_ready()
        before, since = llama.uids(), audit.now()
        wait_rounds(loop)
    assert writes(cluster, operator_account, llama, since) == []
    assert (llama.uids(), llama.live["metadata"]["generation"]) == (before, 1)


@pytest.mark.parametrize("way", WAYS)
def test_nobody_but_people_and_git_owns_fields_of_the_spec(
    cluster: Cluster, llama: Deployed, way: str
) -> None:
    with GitOpsLoop(cluster, in_git(llama), way):
        llama.wait_ready()
    managers = {
        entry["manager"]: sorted(entry["fieldsV1"])
        for entry in llama.live["metadata"]["managedFields"]
        if entry.get("subresource") != "status"
    }
    tool = {"server": "gitops", "client": "kubectl-client-side-apply"}[way]
    assert set(managers) == {tool}


@pytest.mark.parametrize("way", WAYS)
def test_a_person_s_edit_is_healed_and_nobody_fights(
    cluster: Cluster, llama: Deployed, operator_account: OperatorAccount, way: str
) -> None:
    git = in_git(llama, rollout={"maxUnavailable": 1})
    with GitOpsLoop(cluster, git, way) as loop:
        llama.wait_ready()
        before, generation, since = llama.uids(), llama.live["metadata"]["generation"], audit.now()
        llama.edit(rollout={"maxUnavailable": 2})
        wait_rounds(loop)
        llama.wait_ready()
    live = llama.live
    assert (live["spec"]["rollout"], live["metadata"]["generation"]) == (
        {"maxUnavailable": 1},
        generation + 2,
    )
    # The edit is seen before it is healed, or not: one status or two.
    seen = writes(cluster, operator_account, llama, since)
    assert set(seen) == {"patch modeldeployments/status llama"}
    assert len(seen) <= 2
    assert llama.uids() == before


@pytest.mark.parametrize("way", WAYS)
def test_a_person_s_field_that_git_does_not_name_stays(cluster: Cluster, llama: Deployed, way: str) -> None:
    with GitOpsLoop(cluster, in_git(llama), way) as loop:
        llama.wait_ready()
        llama.edit(rollout={"maxUnavailable": 3})
        wait_rounds(loop)
    assert llama.live["spec"]["rollout"] == {"maxUnavailable": 3}
    llama.wait_ready()


@pytest.mark.parametrize("way", WAYS)
def test_git_without_replicas_leaves_scaling_to_others(
    cluster: Cluster, llama: Deployed, kubectl: Callable[..., str], way: str
) -> None:
    with GitOpsLoop(cluster, in_git(llama), way) as loop:
        llama.wait_ready()
        kubectl("scale", "mdep", "llama", "--replicas=2", "-n", llama.namespace)
        wait_rounds(loop)
        llama.wait_ready()
    live = llama.live
    assert (live["spec"]["replicas"], live["metadata"]["generation"], len(llama.pods())) == (2, 2, 2)


@pytest.mark.parametrize("way", WAYS)
def test_git_with_replicas_has_the_last_word_and_nothing_flaps(
    cluster: Cluster, llama: Deployed, kubectl: Callable[..., str], way: str
) -> None:
    loop = GitOpsLoop(cluster, in_git(llama, replicas=1), way)
    loop.apply()
    llama.wait_ready()
    kubectl("scale", "mdep", "llama", "--replicas=3", "-n", llama.namespace)
    llama.wait_ready()
    assert len(llama.pods()) == 3
    with loop:
        wait_for(lambda: len(llama.pods()) == 1, "what Git says")
        wait_rounds(loop)
    live = llama.live
    assert (live["spec"]["replicas"], live["metadata"]["generation"]) == (1, 3)


def test_replicas_that_leave_git_stay_when_the_autoscaler_has_set_them(
    cluster: Cluster, llama: Deployed, kubectl: Callable[..., str]
) -> None:
    GitOpsLoop(cluster, in_git(llama, replicas=1), "server").apply()
    llama.wait_ready()
    kubectl("scale", "mdep", "llama", "--replicas=2", "-n", llama.namespace)
    GitOpsLoop(cluster, in_git(llama), "server").apply()
    llama.wait_ready()
    time.sleep(1)
    assert (llama.live["spec"]["replicas"], len(llama.pods())) == (2, 2)
