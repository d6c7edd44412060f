"""What a running engine's death looks like from outside: noticed, replaced as a whole, serving again.

One deployment suffers all of it, since each start takes a minute at best. Every story ends the same way: it
serves from new pods, no process of an old one is left, and none ever ran beside a new one. How long that took
stands in the table at the end of the run; a busy machine is no failure.
"""

import math
import threading
from collections.abc import Callable, Collection, Iterator

import pytest

from control_plane.client import Client
from control_plane.waiting import wait_for
from live_engine import TOPOLOGIES, Live, LiveDeployment, Row
from live_engine.deployment import PATIENCE_S, READY_TIMEOUT_S
from live_engine.pods import kill, main_process, rank_processes, remaining
from live_engine.recorder import Record, recorded
from real_nodes import Node, RealCluster

pytestmark = pytest.mark.engine

GROUP = TOPOLOGIES["TP2 x PP2"]
Suffer = Callable[[str, Callable[[], object]], Record]


@pytest.fixture(scope="module")
def made(live: Live) -> Iterator[LiveDeployment]:
    with live.deployment(GROUP) as deployment:
        yield deployment


@pytest.fixture
def deployment(made: LiveDeployment) -> LiveDeployment:
    """It serves, whatever became of the test before."""
    made.wait_serving()
    return made


@pytest.fixture
def suffer(deployment: LiveDeployment, note: Callable[[Row], None]) -> Suffer:
    """``suffer(name, fault)`` plays a fault and returns the record of what came after."""

    def play(name: str, fault: Callable[[], object]) -> Record:
        with recorded(deployment) as record:
            fault()
            deployment.wait_serving_anew(record.old, READY_TIMEOUT_S)
            wait_for(lambda: record.serves_s() < math.inf, "the watch tells that it serves")
        note(
            Row(
                group=str(GROUP),
                tokens_equal=True,
                fault=name,
                noticed_s=record.noticed_s(),
                replaced_s=record.replaced_s(),
                serves_s=record.serves_s(),
                cause=record.cause(),
            )
        )
        print(name, *record.reasons(), sep="\n  ")
        assert record.mixed() == []
        return record

    return play


def test_a_killed_worker(deployment: LiveDeployment, suffer: Suffer) -> None:
    def ask() -> None:
        deployment.request("POST", "/v1/completions", _long_request(), timeout_s=READY_TIMEOUT_S)

    # Sent into a group that lacks a rank: without help the engine would let it hang for minutes.
    request = threading.Thread(target=ask, daemon=True)

    def fault() -> None:
        kill(main_process(deployment.pod("worker")))
        request.start()

    record = suffer("worker killed", fault)
    request.join(PATIENCE_S)
    assert not request.is_alive(), "a request hangs beyond the group that it was sent to"
    _await_end(record.old)


def test_a_killed_leader(deployment: LiveDeployment, suffer: Suffer) -> None:
    record = suffer("leader killed", lambda: kill(main_process(deployment.pod("leader"))))
    _await_end(record.old)


def test_a_node_without_power(
    deployment: LiveDeployment, suffer: Suffer, nodes: RealCluster, api: Client
) -> None:
    lost = nodes.node_of(deployment.pod("worker"))
    _reach_services_around(lost, nodes)
    try:
        record = suffer("power of worker's node lost", lost.power_off)
        assert lost.name not in {pod["spec"]["nodeName"] for pod in deployment.pods()}
        _await_end(record.old)
    finally:
        lost.power_on()
        lost.wait_ready(api)
    wait_for(lambda: lost.offers_gpus(api), f"node {lost.name} offers its GPUs", timeout_s=PATIENCE_S)


def test_a_killed_rank_of_a_worker(deployment: LiveDeployment, suffer: Suffer) -> None:
    worker = deployment.pod("worker")
    record = suffer("one rank of worker killed", lambda: kill(rank_processes(worker)[-1]))
    _await_end(record.old)


@pytest.mark.extended
def test_a_killed_rank_of_the_leader(deployment: LiveDeployment, suffer: Suffer) -> None:
    leader = deployment.pod("leader")
    record = suffer("one rank of leader killed", lambda: kill(rank_processes(leader)[-1]))
    _await_end(record.old)


@pytest.mark.extended
def test_a_node_cut_off_and_healed(
    deployment: LiveDeployment, suffer: Suffer, nodes: RealCluster, api: Client
) -> None:
    stranded = deployment.pod("worker")
    lost = nodes.node_of(stranded)
    _reach_services_around(lost, nodes)
    try:
        record = suffer("worker's node cut off", lost.cut_off)
        serving = deployment.uids()
        assert lost.name not in {pod["spec"]["nodeName"] for pod in deployment.pods()}
        # Its kubelet has heard of nothing and starts the container over; its ranks are gone all the same.
        assert rank_processes(stranded) == []
    finally:
        lost.heal()
        lost.wait_ready(api)
    _await_end(record.old)
    deployment.wait_serving()
    assert deployment.uids() == serving


def _await_end(old: Collection[str]) -> None:
    """Wait until no process of these pods is left; their nodes are reached again."""
    wait_for(
        lambda: not remaining(old),
        "no process of an old pod is left",
        timeout_s=PATIENCE_S,
        detail=lambda: remaining(old),
    )


def _reach_services_around(lost: Node, nodes: RealCluster) -> None:
    nodes.use_services_of(next(node for node in nodes.nodes.values() if node is not lost))


def _long_request() -> dict[str, object]:
    return {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 200, "temperature": 0, "ignore_eos": True}
