"""What must survive: a plan and its pods outlive the operator's end, its upgrade and the loss of the status.

Each test runs operators of its own, one after the other.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from control_plane import audit
from control_plane.client import Client, Json
from control_plane.cluster import Cluster
from control_plane.waiting import wait_for
from deployed import (
    FOUND_405B,
    NCCL_DEBUG,
    REVISIONS,
    Deployed,
    leave_no_demand,
)
from operator_process import MDEP, OperatorAccount, crd, operator_account, operator_process, running_operator
from pod_trace import PodTrace
from threaded_operator import ThreadedOperator
from written import described, writes_of

__all__ = ["crd", "leave_no_demand", "operator_account"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("leave_no_demand")]


class Operators:
    """Starts operators with the chart's rights, and knows what they wrote."""

    def __init__(self, cluster: Cluster, account: OperatorAccount, namespace: str) -> None:
        self._cluster = cluster
        self._account = account
        self._namespace = namespace

    def start(self, **settings: Any) -> ThreadedOperator:
        given = {**self._account.lease, **settings}
        return running_operator(self._cluster, kubeconfig=self._account.kubeconfig, **given)

    def process(self, **settings: Any) -> Any:
        given = {**self._account.lease, **settings}
        return operator_process(self._cluster, kubeconfig=self._account.kubeconfig, **given)

    def writes(self, since: datetime) -> list[str]:
        return described(writes_of(self._cluster, self._account.user, since, self._namespace))

    def wait_lists(self, since: datetime, count: int) -> None:
        """Wait until it has listed pods so often.

        At a start that is three times: at first, as its watch begins, and after that.
        """
        log = self._cluster.audit_log
        if log is None:
            pytest.skip("the given cluster's audit log cannot be read")

        def lists() -> int:
            found = audit.read_audit(
                log, user=self._account.user, since=since, verbs={"list"}, resource="pods"
            )
            return len(found)

        wait_for(lambda: lists() >= count, f"{count} lists of pods")


@pytest.fixture
def operators(cluster: Cluster, operator_account: OperatorAccount, namespace: str) -> Operators:
    return Operators(cluster, operator_account, namespace)


@pytest.fixture
def deployment(api: Client, namespace: str, gpu_nodes: Callable[..., object]) -> Deployed:
    """A two-node resource, just created, and the nodes for it."""
    gpu_nodes("H100-SXM-80GB", 2)
    return Deployed(api, namespace, FOUND_405B).create()


def wait_told(deployment: Deployed) -> Json:
    """Wait until it is Ready and the Event of that, the last write of all, is posted."""
    status = deployment.wait_ready()
    wait_for(lambda: deployment.reasons()[-1:] == ["GroupsReady"], "the last event is posted")
    return status


def without_times(status: Json) -> Json:
    conditions = [{**c, "lastTransitionTime": None} for c in status["conditions"]]
    return {**status, "conditions": conditions}


@pytest.mark.parametrize(
    "writes",
    [
        pytest.param(1, id="the revision alone"),
        pytest.param(5, id="no set"),
        pytest.param(6, id="the leader set alone"),
        pytest.param(7, id="no status"),
    ],
)
def test_an_operator_killed_between_two_writes_converges(
    cluster: Cluster, deployment: Deployed, operators: Operators, writes: int
) -> None:
    trace = PodTrace(deployment.api, deployment.namespace)
    with operator_process(cluster, die_after_writes=writes) as first:
        first.wait_killed()
    with operators.start():
        deployment.wait_ready()
    # The group was made once, whole: nothing was taken down on the way.
    assert trace.lives() == [set(deployment.uids().values())]
    assert len(deployment.objects(REVISIONS)) == 1


def test_a_killed_operator_is_followed_when_its_lease_is_over(
    deployment: Deployed, operators: Operators
) -> None:
    with operators.process(lease_duration_s=4.0, lease_renew_deadline_s=3.0, lease_retry_s=0.5) as first:
        deployment.wait_ready()
        first.kill()
    deployment.edit(replicas=0)
    with operators.start():
        deployment.wait("Ready", "True", "ScaledToZero")


def test_a_restart_over_an_unchanged_world_writes_nothing(deployment: Deployed, operators: Operators) -> None:
    with operators.start():
        wait_told(deployment)
    since = audit.now()
    with operators.start():
        operators.wait_lists(since, 3)
    assert operators.writes(since) == []


def test_resyncs_over_an_unchanged_world_write_nothing(deployment: Deployed, operators: Operators) -> None:
    with operators.start(resync_interval_s=1.0):
        wait_told(deployment)
        since = audit.now()
        operators.wait_lists(since, 4)
    assert operators.writes(since) == []


def test_another_version_of_the_operator_writes_nothing_and_restarts_nothing(
    deployment: Deployed, operators: Operators
) -> None:
    with operators.start(version="1.0.0"):
        before, uids = wait_told(deployment), deployment.uids()
    since = audit.now()
    with operators.start(version="2.0.0", default_image="vllm/vllm-openai:v9.9.9"):
        operators.wait_lists(since, 3)
    assert operators.writes(since) == []
    assert (deployment.status, deployment.uids()) == (before, uids)


def test_an_edit_after_an_upgrade_keeps_the_image_of_the_first_plan(
    deployment: Deployed, operators: Operators
) -> None:
    with operators.start(version="1.0.0"):
        before = deployment.wait_ready()
    deployment.edit(engine=NCCL_DEBUG)
    with operators.start(version="2.0.0", default_image="vllm/vllm-openai:v9.9.9"):
        after = deployment.wait_ready()
    assert (after["plan"], after["image"]) == (before["plan"], before["image"])
    assert after["revision"] != before["revision"]


@pytest.mark.parametrize("running", [True, False], ids=["while it runs", "while it is down"])
def test_a_lost_status_comes_back_the_same_and_restarts_nothing(
    deployment: Deployed, operators: Operators, running: bool
) -> None:
    first = operators.start()
    with first:
        before, uids = deployment.wait_ready(), deployment.uids()
        if not running:
            first.stop()
        deployment.api.replace({**deployment.live, "status": {}}, subresource="status")
        if running:
            after = deployment.wait_ready()
    if not running:
        with operators.start():
            after = deployment.wait_ready()
    assert without_times(after) == without_times(before)
    assert deployment.uids() == uids


def test_what_others_write_into_the_status_does_not_stay(deployment: Deployed, operators: Operators) -> None:
    with operators.start():
        before = deployment.wait_ready()
        wrong = {"status": {"ready": "7/7"}}
        deployment.api.patch(MDEP, "llama", wrong, deployment.namespace, subresource="status")
        wait_for(lambda: deployment.status == before, "the status says the truth again")


def test_nodes_that_come_change_no_plan(
    deployment: Deployed, operators: Operators, gpu_nodes: Callable[..., object]
) -> None:
    with operators.start():
        before, uids = deployment.wait_ready(), deployment.uids()
        # A new plan would take these, eight of which hold the model.
        gpu_nodes("H200-SXM-141GB", 1)
        deployment.edit(engine=NCCL_DEBUG)
        after = deployment.wait_ready()
    assert after["plan"] == before["plan"]
    assert set(deployment.uids().values()).isdisjoint(uids.values())


def test_a_lost_revision_is_written_anew_and_restarts_nothing(
    deployment: Deployed, operators: Operators
) -> None:
    with operators.start():
        before, uids = deployment.wait_ready(), deployment.uids()
        deployment.api.delete(REVISIONS, before["revision"], deployment.namespace)
        wait_for(lambda: before["revision"] in deployment.objects(REVISIONS), "the revision is back")
        deployment.wait_ready()
    assert deployment.uids() == uids
