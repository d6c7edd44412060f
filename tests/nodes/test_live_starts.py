"""Starts that go wrong: told to stop in the middle, no name for the leader, no way to its port."""

import contextlib
import time
from collections.abc import Callable

import pytest

from control_plane.client import Client
from control_plane.waiting import wait_for
from live_engine import TOPOLOGIES, Live, LiveDeployment
from live_engine.pods import are_gone, processes
from real_nodes import RealCluster
from real_nodes.network import blocked_port

pytestmark = [pytest.mark.engine, pytest.mark.extended]

GROUP = TOPOLOGIES["TP2 x PP2"]
MASTER_PORT = 29500
RUNNING_S = 120.0
IMPORTING_S = 12.0
STOPPED_S = 20.0
"""Five seconds before the signal, five after it, and the kubelet's own time on a busy machine."""
SILENCE_S = 45.0
RECOVERY_S = 900.0


def test_a_starting_group_that_is_told_to_stop(live: Live, api: Client, note: Callable[[str], None]) -> None:
    with live.deployment(GROUP) as deployment:
        _await_running(deployment)
        time.sleep(IMPORTING_S)
        old = deployment.uids()
        ranks = {pid for pod in deployment.pods() for pid in processes(pod)}
        began = time.monotonic()
        leader = deployment.pod("leader")["metadata"]
        api.delete("pods", leader["name"], deployment.namespace)

        def stopped() -> bool:
            found = api.find("pods", leader["name"], deployment.namespace)
            return found is None or found["metadata"]["uid"] != leader["uid"]

        wait_for(stopped, "the leader is gone", timeout_s=60)
        stopped_s = time.monotonic() - began
        deployment.wait_serving_anew(old.values(), RECOVERY_S)
        serving_s = time.monotonic() - began
        note(f"stopped while starting     gone after {stopped_s:5.1f} s, serves after {serving_s:5.1f} s")
        assert stopped_s <= STOPPED_S
        assert are_gone(ranks)


def test_a_name_that_does_not_resolve(live: Live, nodes: RealCluster, note: Callable[[str], None]) -> None:
    with contextlib.ExitStack() as exits:
        with nodes.silent_dns():
            deployment = exits.enter_context(live.deployment(GROUP))
            _await_running(deployment)
            before = deployment.uids()
            time.sleep(SILENCE_S)
        began = time.monotonic()
        deployment.wait_serving()
        note(f"no name for {SILENCE_S:g} s           serves {time.monotonic() - began:5.1f} s after there is")
        assert deployment.uids() == before
        assert _restarts(deployment) == 0


def test_a_master_port_that_nobody_reaches(live: Live, note: Callable[[str], None]) -> None:
    changes = {"recovery": {"backoff": "1s", "maxBackoff": "2s", "startupTimeout": "180s"}}
    with live.deployment(GROUP, **changes) as deployment:
        _await_running(deployment)
        old = deployment.uids()
        with blocked_port(MASTER_PORT):
            wait_for(
                lambda: deployment.group.get("restarts", 0) > 0,
                "the group starts anew",
                timeout_s=RECOVERY_S,
                detail=deployment.describe,
            )
            said = deployment.group.get("firstFailure")
        began = time.monotonic()
        deployment.wait_serving_anew(old.values(), RECOVERY_S)
        note(f"master port out of reach   {said}, serves {time.monotonic() - began:5.1f} s after it is open")
        assert said


def _await_running(deployment: LiveDeployment) -> None:
    def run() -> bool:
        pods = deployment.pods()
        states = [status["state"] for pod in pods for status in pod["status"].get("containerStatuses", ())]
        return len(states) == GROUP.nodes and all("running" in state for state in states)

    wait_for(run, "all containers run", timeout_s=RUNNING_S, detail=deployment.describe)


def _restarts(deployment: LiveDeployment) -> int:
    return sum(
        status["restartCount"] for pod in deployment.pods() for status in pod["status"]["containerStatuses"]
    )
