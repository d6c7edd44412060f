"""What every rank of a group has, leader and worker alike: each item is a way in which groups were lost."""

from collections.abc import Callable
from typing import Any

import pytest

from shardwright_operator.build.owner import Owner
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.build.revision import Revision
from shardwright_operator.build.stateful_set import leader_set, worker_set
from shardwright_planner.plan import Plan

SPEC: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "scheduling": {"tolerations": [{"key": "dedicated", "operator": "Equal", "value": "models"}]},
}


@pytest.fixture(params=["leader", "worker"])
def made(
    request: pytest.FixtureRequest,
    owner: Owner,
    pool: PoolSelection,
    two_nodes: Plan,
    make_revision: Callable[..., Revision],
) -> dict[str, Any]:
    """The set of one role."""
    revision = make_revision(SPEC, two_nodes, owner, pool)
    if request.param == "leader":
        return leader_set(owner, revision, 0, replicas=1, annotations={})
    return worker_set(owner, revision, 0, replicas=1)


def test_gpu_taints_of_any_value_are_tolerated_beside_the_user_s(made: dict[str, Any]) -> None:
    """Clouds taint GPU nodes with values of their own (kubeflow issue 5275)."""
    tolerations = made["spec"]["template"]["spec"]["tolerations"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in tolerations
    assert SPEC["scheduling"]["tolerations"][0] in tolerations


def test_no_mesh_puts_a_proxy_between_the_ranks(made: dict[str, Any]) -> None:
    """It breaks their direct connections (kuberay issue 1005)."""
    metadata = made["spec"]["template"]["metadata"]
    assert metadata["labels"]["sidecar.istio.io/inject"] == "false"
    assert metadata["annotations"]["linkerd.io/inject"] == "disabled"


def test_no_other_service_speaks_into_the_environment(made: dict[str, Any]) -> None:
    """A Service named vllm would set VLLM_PORT to a URL (vllm issue 34199)."""
    assert made["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_pods_are_made_together_and_replaced_by_the_operator_alone(made: dict[str, Any]) -> None:
    """A rank 0 that is ready only when all have joined would wait for ever (prime-rl pull request 1718)."""
    assert made["spec"]["podManagementPolicy"] == "Parallel"
    assert made["spec"]["updateStrategy"] == {"type": "OnDelete"}
