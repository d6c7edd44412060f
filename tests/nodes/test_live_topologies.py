"""From a resource to tokens: every shape of group starts on real nodes and answers as one process does."""

import time
from collections.abc import Callable

import pytest

from control_plane.waiting import wait_for
from live_engine import TOPOLOGIES, Live, Topology
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
    topology: Topology, live: Live, note: Callable[[str], None]
) -> None:
    began = time.monotonic()
    with live.deployment(topology) as deployment:
        deployment.wait_serving()
        ready_s = time.monotonic() - began

        answers = [deployment.complete(number) for number in range(len(PROMPTS))]
        assert answers == list(deployment.model.answers)

        pods = deployment.pods()
        assert len({pod["spec"]["nodeName"] for pod in pods}) == topology.nodes
        users = [user_of(pid) for pod in pods for pid in processes(pod)]
        assert len(users) >= topology.nodes
        assert 0 not in users

        metrics = wait_for(deployment.metrics, "the engine's metrics are scraped", timeout_s=30)
        assert metrics["vllm:prompt_tokens_total"] >= sum(len(ids) for ids in PROMPTS)
        note(f"{topology!s:16} serves after {ready_s:5.1f} s, token ids as in one process")
