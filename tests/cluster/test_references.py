"""Whether what pods name is there is asked before they are made: the order of the writes, and what is left.

What a kubelet says of a Secret that is not there is for real nodes to show (``tests/nodes``); simulated ones
run every pod.
"""

from collections.abc import Callable
from typing import Any

import pytest

from control_plane.audit import AuditEvent, now, read_audit
from control_plane.client import Client
from control_plane.cluster import Cluster
from control_plane.waiting import wait_for
from deployed import LLAMA_405B, Deployed
from operator_process import OperatorAccount, crd, operator_account, running_operator

__all__ = ["crd", "operator_account"]

pytestmark = pytest.mark.cluster

Nodes = Callable[..., tuple[str, ...]]
NAMED: dict[str, Any] = {**LLAMA_405B, "engine": {"apiKeySecretRef": {"name": "door", "key": "api"}}}


def first_time(events: list[AuditEvent], verb: str, resource: str) -> int:
    """Position of the first call of this kind."""
    return next(i for i, event in enumerate(events) if (event.verb, event.resource) == (verb, resource))


def test_the_answer_comes_before_the_sets_and_its_job_goes_with_the_start(
    *, cluster: Cluster, api: Client, namespace: str, gpu_nodes: Nodes, operator_account: OperatorAccount
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    began = now()
    llama = Deployed(api, namespace, NAMED)
    account = operator_account
    with running_operator(
        cluster, kubeconfig=account.kubeconfig, check_image="shardwright:1", **account.lease
    ):
        llama.create()
        llama.wait_ready()
        wait_for(lambda: api.list("jobs.batch", namespace) == [], "the check is gone")
        wait_for(
            lambda: len(api.list("pods", namespace)) == len(llama.pods()) == 2, "its pod is gone as well"
        )

    assert cluster.audit_log is not None
    seen = list(read_audit(cluster.audit_log, user=account.user, since=began, namespace=namespace))
    asked, made = first_time(seen, "create", "jobs"), first_time(seen, "patch", "statefulsets")
    assert asked < made < first_time(seen, "delete", "jobs")
