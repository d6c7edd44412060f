"""What tools that wait make of a resource's whole life: Flux and Helm by kstatus, Argo CD by our script."""

from collections.abc import Iterator, Mapping

import pytest

from argo_health import health
from control_plane.client import Client
from control_plane.nodes import delete_nodes, make_nodes
from kstatus import Status, statuses
from operator_process import crd, operator, operator_account
from recorded_life import Life, Stage
from threaded_operator import ThreadedOperator

__all__ = ["crd", "operator", "operator_account"]

pytestmark = pytest.mark.cluster

Stages = Mapping[str, Stage]

NAMESPACE = "life"

OUTCOMES = [
    pytest.param("created", Status.CURRENT, "Healthy", id="created"),
    pytest.param("edited", Status.CURRENT, "Healthy", id="edited"),
    pytest.param("broken", Status.CURRENT, "Healthy", id="broken and back"),
    pytest.param("given up", Status.FAILED, "Degraded", id="given up"),
    pytest.param("tried again", Status.CURRENT, "Healthy", id="tried again"),
    pytest.param("infeasible", Status.FAILED, "Degraded", id="infeasible"),
    pytest.param("feasible again", Status.CURRENT, "Healthy", id="feasible again"),
    pytest.param("paused", Status.IN_PROGRESS, "Suspended", id="a change is held back"),
    pytest.param("paused for nothing", Status.CURRENT, "Healthy", id="paused, and nothing to hold back"),
    pytest.param("scaled to zero", Status.CURRENT, "Healthy", id="scaled to zero"),
    pytest.param("scaled up", Status.CURRENT, "Healthy", id="scaled up again"),
    pytest.param("scaled in", Status.CURRENT, "Healthy", id="one group less"),
    pytest.param("deleted", Status.TERMINATING, "Progressing", id="deleted"),
]

NEVER_ON_THE_WAY = [
    pytest.param("created", id="created"),
    pytest.param("edited", id="edited"),
    pytest.param("broken", id="broken and back"),
    pytest.param("infeasible", id="infeasible"),
    pytest.param("feasible again", id="feasible again"),
    pytest.param("paused", id="a change is held back"),
    pytest.param("paused for nothing", id="paused, and nothing to hold back"),
    pytest.param("scaled to zero", id="scaled to zero"),
    pytest.param("scaled up", id="scaled up again"),
    pytest.param("scaled in", id="one group less"),
]
"""Stages that begin with an edit or a failure: nothing is settled until they end."""


@pytest.fixture(scope="module")
def life(api: Client, operator: ThreadedOperator) -> Iterator[Stages]:
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    nodes = make_nodes(api, "H100-SXM-80GB", 4)
    yield Life(api, NAMESPACE).live()
    api.delete("namespaces", NAMESPACE)
    delete_nodes(api, nodes)


@pytest.mark.parametrize(("stage", "status", "argo"), OUTCOMES)
def test_kstatus_at_the_end(life: Stages, stage: str, status: Status, argo: str) -> None:
    assert statuses([life[stage].last]) == [status], life[stage].reasons()


@pytest.mark.parametrize(("stage", "status", "argo"), OUTCOMES)
def test_health_in_argo_cd_at_the_end(life: Stages, stage: str, status: Status, argo: str) -> None:
    assert health(life[stage].last).status == argo, life[stage].reasons()


@pytest.mark.parametrize("stage", NEVER_ON_THE_WAY)
def test_kstatus_never_takes_the_way_for_the_end(life: Stages, stage: str) -> None:
    assert set(statuses(life[stage].on_the_way)) == {Status.IN_PROGRESS}, life[stage].reasons()


@pytest.mark.parametrize("stage", NEVER_ON_THE_WAY)
def test_argo_cd_never_takes_the_way_for_the_end(life: Stages, stage: str) -> None:
    assert {health(body).status for body in life[stage].on_the_way} == {"Progressing"}, life[stage].reasons()


def test_the_new_object_is_in_progress_before_the_operator_sees_it(life: Stages) -> None:
    born = life["created"].first
    assert born["status"] == {"observedGeneration": -1}
    assert (statuses([born]), health(born).status) == ([Status.IN_PROGRESS], "Progressing")


def test_a_group_that_backs_off_has_not_failed_yet(life: Stages) -> None:
    assert "BackingOff" in life["broken"].reasons()
    assert Status.FAILED not in statuses(life["broken"].versions)


def test_giving_up_is_the_only_failure_of_a_group_that_crashes(life: Stages) -> None:
    seen = statuses(life["given up"].versions)
    assert seen.index(Status.FAILED) == len(seen) - 1


def test_health_tells_what_to_do(life: Stages) -> None:
    assert health(life["given up"].last).message.startswith(
        "RestartLimit: group 0: given up after 1 restarts"
    )
    assert "Allow 2 nodes" in health(life["infeasible"].last).message
