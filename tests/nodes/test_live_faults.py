"""What a running engine's death looks like from outside: noticed, replaced as a whole, serving again.

One deployment suffers all of it, since each start takes a minute at best. Every story ends the same way: it
serves from new pods, no process of an old one is left, and none ever ran beside a new one.
"""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from control_plane.client import Client
from control_plane.waiting import wait_for
from live_engine import TOPOLOGIES, Live, LiveDeployment
from live_engine.pods import are_gone, kill, main_process, processes, rank_processes
from live_engine.recorder import Record, recorded
from real_nodes import Node, RealCluster

pytestmark = pytest.mark.engine

RECOVERY_S = 900.0
ENDED_S = 60.0
GONE_S = 25.0
"""For pods whose requests are lost anyway; their own grace would keep a worker for 40 s and more."""
GONE_BY_FORCE_S = 90.0
"""For pods of a node that confirms nothing: Kubernetes says after 50 s that it is lost."""
NOTICED_AT_ONCE_S = 15.0
NOTICED_BY_SILENCE_S = 90.0
"""Peers say after 20 s that a rank is silent, Kubernetes after 50 s that a node is."""


@pytest.fixture(scope="module")
def deployment(live: Live) -> Iterator[LiveDeployment]:
    with live.deployment(TOPOLOGIES["TP2 x PP2"]) as made:
        made.wait_serving()
        yield made


@pytest.fixture
def suffer(deployment: LiveDeployment, note: Callable[[str], None]) -> Callable[..., Record]:
    """``suffer(name, fault, noticed_within_s)`` plays a fault and returns the record of what came after."""

    def play(
        name: str, fault: Callable[[], object], noticed_within_s: float, gone_within_s: float = GONE_S
    ) -> Record:
        deployment.wait_serving()
        before = deployment.pods()
        old = {pid for pod in before for pid in processes(pod)}
        began = time.monotonic()
        with recorded(deployment) as record:
            fault()
            deployment.wait_serving_anew(record.old, RECOVERY_S)
            serving_s = time.monotonic() - began
        story = (
            f"noticed after {record.noticed_s():5.1f} s, old pods gone after {record.replaced_s():5.1f} s, "
            f"serves again after {serving_s:5.1f} s"
        )
        note(f"{name:26} {story}")
        print(name, story, record.reasons())
        assert record.mixed() == []
        assert record.noticed_s() <= noticed_within_s
        assert record.replaced_s() - record.noticed_s() <= gone_within_s
        wait_for(lambda: are_gone(old), "no old process is left", timeout_s=ENDED_S)
        return record

    return play


def test_a_killed_worker(deployment: LiveDeployment, suffer: Callable[..., Record]) -> None:
    ended: list[float] = []

    def ask() -> None:
        deployment.request("POST", "/v1/completions", _long_request(), timeout_s=RECOVERY_S)
        ended.append(time.monotonic())

    def fault() -> None:
        kill(main_process(deployment.pod("worker")))
        # Sent into a group that lacks a rank: without help the engine would let it hang for minutes.
        threading.Thread(target=ask, daemon=True).start()

    began = time.monotonic()
    record = suffer("worker killed", fault, NOTICED_AT_ONCE_S)
    assert ended, "a request hangs beyond the group that it was sent to"
    assert ended[0] - began <= record.replaced_s() + 30


def test_a_killed_leader(deployment: LiveDeployment, suffer: Callable[..., Record]) -> None:
    suffer("leader killed", lambda: kill(main_process(deployment.pod("leader"))), NOTICED_AT_ONCE_S)


def test_a_node_without_power(
    deployment: LiveDeployment, suffer: Callable[..., Record], nodes: RealCluster, api: Client
) -> None:
    lost = nodes.node_of(deployment.pod("worker"))
    _reach_services_around(lost, nodes)
    suffer("node of the worker lost", lost.power_off, NOTICED_BY_SILENCE_S, GONE_BY_FORCE_S)
    assert lost.name not in {pod["spec"]["nodeName"] for pod in deployment.pods()}
    lost.power_on()
    lost.wait_ready(api)
    wait_for(lambda: lost.offers_gpus(api), f"node {lost.name} still offers its GPUs", timeout_s=60)


def test_a_killed_rank_of_a_worker(deployment: LiveDeployment, suffer: Callable[..., Record]) -> None:
    rank = rank_processes(deployment.pod("worker"))[-1]
    suffer("one rank of worker killed", lambda: kill(rank), NOTICED_BY_SILENCE_S)


@pytest.mark.extended
def test_a_killed_rank_of_the_leader(deployment: LiveDeployment, suffer: Callable[..., Record]) -> None:
    rank = rank_processes(deployment.pod("leader"))[-1]
    suffer("one rank of leader killed", lambda: kill(rank), NOTICED_BY_SILENCE_S)


@pytest.mark.extended
def test_a_node_cut_off(
    deployment: LiveDeployment, suffer: Callable[..., Record], nodes: RealCluster, api: Client
) -> None:
    lost = nodes.node_of(deployment.pod("worker"))
    _reach_services_around(lost, nodes)
    try:
        suffer("node of the worker cut off", lost.cut_off, NOTICED_BY_SILENCE_S, GONE_BY_FORCE_S)
        assert lost.name not in {pod["spec"]["nodeName"] for pod in deployment.pods()}
    finally:
        lost.heal()
    lost.wait_ready(api)
    deployment.wait_serving()


def _reach_services_around(lost: Node, nodes: RealCluster) -> None:
    nodes.use_services_of(next(node for node in nodes.nodes.values() if node is not lost))


def _long_request() -> dict[str, object]:
    return {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 200, "temperature": 0, "ignore_eos": True}
