"""From a resource to tokens: every shape of group starts on real nodes and answers as one process does."""

import time
from collections.abc import Callable

import pytest

from control_plane.waiting import wait_for
from live_engine import TOPOLOGIES, Live, LiveDeployment, Row, Topology
from live_engine.deployment import PATIENCE_S
from live_engine.models import PROMPTS
from live_engine.pods import processes, user_of

pytestmark = pytest.mark.engine

QUICK = "TP2 x PP2"


@pytest.mark.parametrize(
    "topology",
    [
        pytest.param(topology, id=name, marks=() if name == QUICK else pytest.mark.extended)
        for name, topology in TOPOLOGIES.items()
    ],
)
def test_a_group_serves_what_one_process_answers(
    topology: Topology, live: Live, note: Callable[[Row], None]
) -> None:
    began = time.monotonic()
    with live.deployment(topology) as deployment:
        deployment.wait_serving()
        ready_s = time.monotonic() - began

        answers = [deployment.complete(number) for number in range(len(PROMPTS))]
        equal = answers == list(deployment.model.answers)
        note(Row(group=str(topology), ready_s=ready_s, tokens_equal=equal))
        assert equal, answers

        pods = deployment.pods()
        assert len({pod["spec"]["nodeName"] for pod in pods}) == topology.nodes
        users = [user_of(pid) for pod in pods for pid in processes(pod)]
        assert len(users) >= topology.nodes
        assert 0 not in users

        metrics = wait_for(deployment.metrics, "the engine's metrics are scraped", timeout_s=PATIENCE_S)
        assert metrics["vllm:prompt_tokens_total"] >= sum(len(ids) for ids in PROMPTS)
        _check_measured(deployment, topology)


def _check_measured(deployment: LiveDeployment, topology: Topology) -> None:
    """The operator has read the same of the engine as its clients do, and holds it against the plan."""
    measured = wait_for(
        lambda: deployment.status.get("measured"),
        "the operator has measured the engine",
        timeout_s=PATIENCE_S,
        detail=deployment.describe,
    )
    cache = deployment.cache()
    blocks, size = cache["num_gpu_blocks"] * topology.data, cache["block_size"]
    assert {name: measured[name] for name in ("kvCacheBlocks", "kvBlockTokens", "maxModelLength")} == {
        "kvCacheBlocks": blocks,
        "kvBlockTokens": size,
        "maxModelLength": deployment.longest_request(),
    }
    assert measured["chatTemplate"] is True
    # 64 MiB of cache for each rank are far from what the GPU of the plan would have.
    assert deployment.condition("PlanVerified") == ("False", "DiffersFromPlan")
    said = deployment.message("PlanVerified")
    assert f"{measured['kvCacheTokens']:,} tokens" in said
    assert f"{measured['plannedKvCacheTokens']:,} planned" in said
