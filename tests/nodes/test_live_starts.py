"""Starts that go wrong: told to stop in the middle, no name for the leader, no way to its port."""

import functools
import math
import time
from collections.abc import Callable

import pytest

from control_plane.client import Client
from control_plane.waiting import wait_for
from live_engine import TOPOLOGIES, Live, LiveDeployment, Row
from live_engine.deployment import PATIENCE_S, READY_TIMEOUT_S, RECOVERY
from live_engine.pods import is_starting, remaining
from live_engine.recorder import Record, recorded
from real_nodes import RealCluster
from real_nodes.configuration import CLUSTER_DOMAIN
from real_nodes.dns import is_unknown
from real_nodes.network import blocked_port
from shardwright_operator.api.names import leader_address

pytestmark = [pytest.mark.engine, pytest.mark.extended]

GROUP = TOPOLOGIES["TP2 x PP2"]
MASTER_PORT = 29500
WAITS_FOR_NAME = "waiting for the leader's name"
Note = Callable[[Row], None]


def test_a_starting_group_that_is_told_to_stop(live: Live, api: Client, note: Note) -> None:
    with live.deployment(GROUP) as deployment:
        _await(deployment, lambda: _both_starting(deployment), "both engines are starting")
        leader = deployment.pod("leader")
        uid, grace_s = leader["metadata"]["uid"], leader["spec"]["terminationGracePeriodSeconds"]
        with recorded(deployment) as record:
            api.delete("pods", leader["metadata"]["name"], deployment.namespace)
            deployment.wait_serving_anew(record.old, READY_TIMEOUT_S)
            wait_for(lambda: record.serves_s() < math.inf, "the watch tells that it serves")
        note(_row("leader told to stop while starting", record))
        # An engine that starts ignores the signal: only its launcher ends it before the whole grace is over.
        assert record.gone_s(uid) < grace_s
        assert record.mixed() == []
        wait_for(lambda: not remaining(record.old), "no old process is left", timeout_s=PATIENCE_S)


def test_a_name_that_nobody_answers_for(live: Live, nodes: RealCluster, note: Note) -> None:
    with nodes.silent_dns(), live.deployment(GROUP) as deployment:
        for role in ("leader", "worker"):
            _await(deployment, functools.partial(_says, deployment, role, WAITS_FOR_NAME), f"{role} waits")
        before = deployment.uids()
        nodes.resume_dns()
        began = time.monotonic()
        deployment.wait_serving()
        note(Row(group=str(GROUP), tokens_equal=True, fault="DNS silent", serves_s=time.monotonic() - began))
        assert deployment.uids() == before
        assert _restarts(deployment) == 0


def test_a_name_that_is_cached_as_unknown(live: Live, note: Note) -> None:
    with live.deployment(GROUP) as deployment:
        name = f"{leader_address(deployment.name, 0, deployment.namespace)}.{CLUSTER_DOMAIN}"
        _await(
            deployment,
            # Asked all the time, so that the last "no such name" is the one that the pods meet.
            lambda: is_unknown(name) and _leader_address(deployment),
            "DNS denies a leader that has an address",
        )
        began = time.monotonic()
        _await(deployment, lambda: not is_unknown(name), "DNS knows the leader")
        denied_s = time.monotonic() - began
        deployment.wait_serving()
        serves_s = time.monotonic() - began
        fault = f"leader's name denied for {denied_s:.0f} s"
        note(Row(group=str(GROUP), tokens_equal=True, fault=fault, serves_s=serves_s))
        assert _restarts(deployment) == 0


def test_a_master_port_that_nobody_reaches(live: Live, note: Note) -> None:
    # Long enough for engines on busy cores to get as far as their port.
    changes = {"recovery": RECOVERY | {"startupTimeout": "240s"}}
    with live.deployment(GROUP, **changes) as deployment, recorded(deployment) as record:
        with blocked_port(MASTER_PORT):
            _await(deployment, lambda: record.noticed_s() < math.inf, "the group is found broken")
            _await(deployment, lambda: deployment.group.get("restarts", 0) > 0, "the group starts anew")
            said = deployment.group["firstFailure"]
        began = time.monotonic()
        deployment.edit(recovery=RECOVERY)
        deployment.wait_serving()
        note(
            Row(
                group=str(GROUP),
                tokens_equal=True,
                fault="master port out of reach",
                noticed_s=record.noticed_s(),
                serves_s=time.monotonic() - began,
                cause=record.cause(),
            )
        )
        assert (said["reason"], record.cause()) == ("RendezvousTimeout", "RendezvousTimeout")
        assert f"rank 0 waits at port {MASTER_PORT}" in said["message"]


def _row(fault: str, record: Record) -> Row:
    return Row(
        group=str(GROUP),
        tokens_equal=True,
        fault=fault,
        noticed_s=record.noticed_s(),
        replaced_s=record.replaced_s(),
        serves_s=record.serves_s(),
        cause=record.cause(),
    )


def _await(deployment: LiveDeployment, holds: Callable[[], object], what: str) -> None:
    wait_for(holds, what, timeout_s=READY_TIMEOUT_S, detail=deployment.describe)


def _both_starting(deployment: LiveDeployment) -> bool:
    pods = deployment.pods()
    return len(pods) == GROUP.nodes and all(map(is_starting, pods))


def _says(deployment: LiveDeployment, role: str, words: str) -> bool:
    return words in deployment.log(deployment.pod(role)["metadata"]["name"])


def _leader_address(deployment: LiveDeployment) -> str:
    return str(deployment.pod("leader")["status"].get("podIP", ""))


def _restarts(deployment: LiveDeployment) -> int:
    return sum(
        status["restartCount"] for pod in deployment.pods() for status in pod["status"]["containerStatuses"]
    )
