"""Rollouts as whole sequences, and the counts behind them as data."""

from typing import Any

import pytest

from invariants import Invariants
from shardwright_operator.api.constants import Label
from shardwright_operator.decide.rollout import Limits, Lineup, Place
from simulated_world import SimulatedWorld

LLAMA_405B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "slo": {"concurrency": 32, "timePerOutputToken": "150ms", "timeToFirstToken": "30s"},
    "recovery": {"backoff": "10s", "maxRestarts": 2},
}


def place(letters: str, index: int) -> Place:
    """``R`` serves, ``d`` did, ``b`` is broken; ``o`` outdated, ``x`` on a cordoned node, ``-`` down."""
    return Place(
        index=index,
        age=(index, index),  # type: ignore[arg-type]
        serves="R" in letters,
        is_good="R" in letters or "d" in letters,
        is_up="-" not in letters,
        outdated="o" in letters,
        displaced="x" in letters,
    )


def lineup(text: str, wanted: int, **limits: Any) -> Lineup:
    places = [place(letters, index) for index, letters in enumerate(text.split())]
    return Lineup(places, Limits(**{"wanted": wanted, "max_unavailable": None, "max_surge": 0, **limits}))


@pytest.mark.parametrize(
    ("groups", "limits", "gone"),
    [
        pytest.param("R R", {"wanted": 2}, [], id="as many as wanted"),
        pytest.param("R R R", {"wanted": 2}, [2], id="the newest goes"),
        pytest.param("R b R", {"wanted": 2}, [1], id="a broken one goes first"),
        pytest.param("d b R", {"wanted": 2}, [1], id="one that only hiccups is not broken"),
        pytest.param("R Ro R", {"wanted": 2}, [1], id="an outdated one before the newest"),
        pytest.param("R Ro b R", {"wanted": 2}, [2, 1], id="broken, then outdated"),
        pytest.param("R b Ro", {"wanted": 0}, [1, 2, 0], id="scale to zero"),
        pytest.param("Ro R b", {"wanted": 2, "max_surge": 1}, [], id="the surge group is not there yet"),
        pytest.param("Ro R R", {"wanted": 2, "max_surge": 1}, [0], id="its place is taken"),
        pytest.param("Ro Ro R", {"wanted": 2, "max_surge": 1}, [1], id="the newest of the outdated"),
        pytest.param("bo Ro b", {"wanted": 2, "max_surge": 1}, [0], id="a broken outdated one at once"),
        pytest.param("do b", {"wanted": 1, "max_surge": 1}, [], id="the last good one only hiccups"),
        pytest.param("Ro b", {"wanted": 1, "max_surge": 1, "max_unavailable": 1}, [], id="never the last"),
        pytest.param(
            "Ro Ro b", {"wanted": 2, "max_surge": 1, "max_unavailable": 1}, [1], id="one may be down"
        ),
        pytest.param("Ro Ro b", {"wanted": 2, "max_surge": 1, "paused": True}, [2], id="paused half way"),
        pytest.param("Ro Ro b", {"wanted": 2, "max_surge": 1, "stalled": True}, [], id="stalled half way"),
        pytest.param("Ro Ro R R", {"wanted": 1, "max_surge": 1}, [1, 0], id="lowered in a rollout"),
    ],
)
def test_which_groups_are_too_many(groups: str, limits: dict[str, Any], gone: list[int]) -> None:
    assert lineup(groups, **limits).surplus() == gone


@pytest.mark.parametrize(
    ("groups", "limits", "replaced"),
    [
        pytest.param("Ro Ro Ro", {"wanted": 3}, [0], id="one at a time"),
        pytest.param("bo- Ro Ro", {"wanted": 3}, [], id="one is down"),
        pytest.param("b Ro Ro", {"wanted": 3}, [], id="the new one does not serve"),
        pytest.param("Ro bo Ro", {"wanted": 3}, [1], id="a broken one takes the turn"),
        pytest.param("bo bo Ro", {"wanted": 3}, [0, 1], id="broken ones need no turn"),
        pytest.param("Ro do Ro", {"wanted": 3}, [1], id="one that does not serve now goes first"),
        pytest.param("do do", {"wanted": 2}, [], id="two hiccups at once, and one is the last good one"),
        pytest.param("do", {"wanted": 1}, [0], id="the only one"),
        pytest.param("Ro", {"wanted": 1}, [0], id="the only one, serving"),
        pytest.param("Ro Ro", {"wanted": 2, "max_unavailable": 5}, [0], id="one of two stays"),
        pytest.param("Ro Ro Ro", {"wanted": 3, "max_unavailable": 2}, [0, 1], id="two at a time"),
        pytest.param("Ro", {"wanted": 1, "max_unavailable": 0, "max_surge": 1}, [], id="none may be down"),
        pytest.param("Ro bo", {"wanted": 2, "paused": True}, [], id="paused"),
        pytest.param("Ro bo", {"wanted": 2, "stalled": True}, [], id="stalled"),
        pytest.param("Rx R", {"wanted": 2}, [0], id="off a cordoned node"),
        pytest.param("Rx Rx Rx", {"wanted": 3}, [0], id="three on cordoned nodes, one at a time"),
        pytest.param("Rx b", {"wanted": 2}, [], id="a drain waits for its turn, too"),
        pytest.param("bx R", {"wanted": 2}, [0], id="one that serves nobody leaves the node at once"),
        pytest.param("Rx Ro", {"wanted": 2, "paused": True}, [0], id="a drain while paused"),
    ],
)
def test_which_groups_are_replaced_where_they_stand(
    groups: str, limits: dict[str, Any], replaced: list[int]
) -> None:
    assert list(lineup(groups, **limits).replaced_in_place(surging=False)) == replaced


@pytest.mark.parametrize(
    ("groups", "limits", "made"),
    [
        pytest.param("R", {"wanted": 3}, (2, 0), id="scale out"),
        pytest.param("Ro Ro", {"wanted": 2, "max_surge": 1}, (0, 1), id="one more"),
        pytest.param("Ro Ro", {"wanted": 2, "max_surge": 5}, (0, 2), id="no more than are outdated"),
        pytest.param("Ro Ro b", {"wanted": 2, "max_surge": 1}, (0, 0), id="it is on its way"),
        pytest.param("Ro", {"wanted": 2, "max_surge": 1}, (1, 1), id="both"),
        pytest.param("R R", {"wanted": 2, "max_surge": 1}, (0, 0), id="nothing to replace"),
        pytest.param("Ro", {"wanted": 1, "max_surge": 1, "paused": True}, (0, 0), id="paused"),
        pytest.param("Ro", {"wanted": 1, "max_surge": 1, "stalled": True}, (0, 0), id="stalled"),
    ],
)
def test_how_many_groups_are_made(groups: str, limits: dict[str, Any], made: tuple[int, int]) -> None:
    found = lineup(groups, **limits)
    assert (found.lacking(), found.surge()) == made


def running(world: SimulatedWorld) -> dict[str, str]:
    """Hash of the pods by group."""
    found = world.formations().items()
    return {group: pods[0]["metadata"]["labels"][Label.PODS] for (_, group), pods in found}


def change_environment(spec: dict[str, Any]) -> None:
    spec["engine"] = {"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}


def start(rollout: dict[str, Any] | None = None, **options: Any) -> SimulatedWorld:
    replicas = options.pop("replicas", 2)
    world = SimulatedWorld({**LLAMA_405B, "replicas": replicas, "rollout": rollout or {}}, **options)
    world.settle()
    assert world.status["ready"] == f"{replicas}/{replicas}"
    world.trace.clear()
    world.events.clear()
    return world


@pytest.mark.parametrize(
    ("nodes", "rollout", "fewest", "most", "groups"),
    [
        pytest.param(4, {}, 1, 2, ["0", "1"], id="no GPUs to spare"),
        pytest.param(6, {}, 1, 2, ["0", "1"], id="GPUs to spare, and nobody asked"),
        pytest.param(6, {"maxSurge": 1}, 2, 3, ["2", "3"], id="surge"),
        pytest.param(8, {"maxSurge": 2}, 2, 4, ["2", "3"], id="surge by two"),
        pytest.param(4, {"maxSurge": 1}, 1, 2, ["0", "1"], id="surge without room: down, then up"),
        pytest.param(5, {"maxSurge": 1}, 1, 2, ["0", "1"], id="half a spare group is no room"),
        pytest.param(6, {"maxSurge": 1, "maxUnavailable": 0}, 2, 3, ["2", "3"], id="none may be down"),
        pytest.param(4, {"maxUnavailable": 2}, 1, 2, ["0", "1"], id="one of two stays up"),
    ],
)
def test_a_changed_environment_replaces_all_groups(
    nodes: int, rollout: dict[str, Any], fewest: int, most: int, groups: list[str]
) -> None:
    world = start(rollout, nodes=nodes)
    before = set(running(world).values())
    check = Invariants(world, fewest=fewest, surge=rollout.get("maxSurge", 0))
    world.edit(change_environment)
    world.settle(check=check)
    after = running(world)
    assert (check.lowest, check.most) == (fewest, most)
    assert sorted(after) == groups
    assert before.isdisjoint(after.values())
    assert world.condition("Ready") == ("True", "GroupsReady")
    assert len(world.of_kind("PodDisruptionBudget")) == 2


def test_a_rollout_that_may_not_lose_a_group_waits_for_room_and_says_so() -> None:
    world = start({"maxSurge": 1, "maxUnavailable": 0}, nodes=4)
    world.edit(change_environment)
    world.settle(check=Invariants(world, fewest=2, surge=1))
    message = world.status["conditions"][0]["message"]
    assert world.condition("Ready") == ("False", "RollingOut")
    assert "no whole spare group fits" in message
    assert "16 GPUs are missing" in message
    world.add_node("node-8")
    world.add_node("node-9")
    world.run_for(120, check=Invariants(world, fewest=2, surge=1))
    assert world.condition("Ready") == ("True", "GroupsReady")


def test_in_one_namespace_free_gpus_are_unknown_and_groups_go_down_first() -> None:
    world = SimulatedWorld(
        {
            **LLAMA_405B,
            "replicas": 2,
            "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2},
            "rollout": {"maxSurge": 1},
        },
        nodes=8,
        one_namespace=True,
    )
    world.settle()
    world.edit(change_environment)
    check = Invariants(world, fewest=1, surge=1)
    world.settle(check=check)
    assert (check.most, world.status["ready"]) == (2, "2/2")
    told = [event.message for event in world.events if event.reason == "RollingOut"]
    assert len(told) == 2
    assert all("cannot be known by an operator that serves single namespaces" in text for text in told)


def test_an_operator_that_dies_at_any_write_of_a_surge_goes_on() -> None:
    for writes in range(12):
        world = start({"maxSurge": 1}, nodes=6)
        world.edit(change_environment)
        check = Invariants(world, fewest=2, surge=1)
        world.reconcile(die_after=writes)
        world.controllers()
        world.restart_operator()
        world.settle(check=check)
        assert world.condition("Ready") == ("True", "GroupsReady"), writes


def test_a_group_that_is_surplus_is_told_to_go_before_another_takes_its_place() -> None:
    # A second edit while the surge group of the first came up: both writes went out together, and a trace of
    # the API server had five groups where four were allowed.
    world = start({"maxSurge": 1}, nodes=8)
    world.edit(change_environment)
    world.reconcile()
    world.edit(lambda spec: spec.update(engine={"env": [{"name": "NCCL_DEBUG", "value": "TRACE"}]}))
    world.writes.clear()
    world.reconcile()
    sets = [write for write in world.writes if "StatefulSet" in write]
    assert sets == [
        "apply StatefulSet llama-2-leader",
        "apply StatefulSet llama-2-worker",
        "apply StatefulSet llama-3-leader",
        "apply StatefulSet llama-3-worker",
    ]


def bad_image(world: SimulatedWorld) -> None:
    world.edit(lambda spec: spec.update(engine={"image": "vllm/vllm-openai:v0.32.0-typo", "version": "0.32"}))
    world.course = lambda pod: "image" if "typo" in pod["spec"]["containers"][0]["image"] else ""


@pytest.mark.parametrize(
    ("rollout", "nodes", "standing"),
    [
        pytest.param({}, 6, 2, id="one at a time"),
        pytest.param({"maxUnavailable": 9}, 6, 1, id="all may be down, and one stays"),
        pytest.param({"maxSurge": 1}, 8, 3, id="surge"),
    ],
)
def test_a_bad_image_never_takes_the_last_good_group(
    rollout: dict[str, Any], nodes: int, standing: int
) -> None:
    world = start({**rollout, "progressDeadline": "10m"}, nodes=nodes, replicas=3)
    old = set(running(world).values())
    bad_image(world)
    check = Invariants(world, fewest=standing, surge=rollout.get("maxSurge", 0))
    world.run_for(300, check=check)
    assert world.condition("Ready") == ("False", "ImagePull")
    assert world.condition("Stalled") is None
    world.run_for(600, check=check)
    assert world.condition("Stalled") == ("True", "ProgressDeadlineExceeded")
    assert "has not served within 10m of its start" in world.status["conditions"][0]["message"]
    # A good group that breaks now comes back as it was.
    good = next(group for group, pods_hash in running(world).items() if pods_hash in old)
    world.delete_pod(f"llama-{good}-worker-1")
    world.run_for(120)
    assert running(world)[good] in old
    assert check.serving() == standing
    # The former spec again: what was tried goes, and nothing else is touched.
    world.trace.clear()
    world.edit(lambda spec: spec.pop("engine"))
    world.run_for(600, check=check)
    assert world.condition("Ready") == ("True", "GroupsReady")
    assert set(running(world).values()) == old
    assert not any(name.startswith(f"llama-{good}-") for name in world.trace)


def test_a_pause_half_way_holds_and_goes_on() -> None:
    world = start(nodes=6, replicas=3)
    old = set(running(world).values())
    world.edit(change_environment)
    for _ in range(4):
        world.step()
    world.edit(lambda spec: spec["rollout"].update(paused=True))
    world.settle(check=Invariants(world, fewest=2))
    mixed = running(world)
    assert world.condition("Ready") == ("False", "Paused")
    assert [mixed[group] in old for group in sorted(mixed)] == [False, True, True]
    world.delete_pod("llama-2-leader-0")
    world.settle()
    assert running(world) == mixed
    world.edit(lambda spec: spec.update(replicas=4))
    world.add_node("node-8")
    world.add_node("node-9")
    world.settle()
    # A new group while changes are held back runs what the others do.
    assert running(world)["3"] in old
    world.edit(lambda spec: spec["rollout"].update(paused=False))
    world.settle(check=Invariants(world, fewest=3))
    assert old.isdisjoint(running(world).values())


def test_broken_groups_are_replaced_first_and_cost_no_turn() -> None:
    world = start(nodes=6, replicas=3)
    world.course = lambda pod: "unready" if pod["metadata"]["name"].startswith("llama-2-") else ""
    world.restart_container("llama-2-worker-1")
    world.run_for(60)
    assert world.status["groups"][2]["phase"] == "Forming"
    world.course = lambda _pod: ""
    world.edit(change_environment)
    order = []

    def look() -> None:
        order.extend(n for n in world.trace if n.split()[0].endswith("leader-0") and n not in order)

    world.trace.clear()
    world.settle(check=look)
    assert [name.split("-")[1] for name in order] == ["2", "0", "1"]


def test_the_history_is_as_long_as_asked_for() -> None:
    world = start({"historyLimit": 2}, replicas=1)
    for number in range(6):
        env = [{"name": "NUMBER", "value": str(number)}]
        world.edit(lambda spec, env=env: spec.update(engine={"env": env}))  # type: ignore[misc]
        world.settle()
    assert len(world.of_kind("ControllerRevision")) == 3


def test_events_of_a_rollout_tell_the_story_in_order() -> None:
    world = start(nodes=4)
    world.edit(change_environment)
    world.settle()
    told = [(event.reason, event.message.split(":")[0]) for event in world.events]
    assert told == [
        ("RollingOut", "group 0 goes down to start again"),
        ("GroupReady", "group 0"),
        ("RollingOut", "group 1 goes down to start again"),
        ("GroupsReady", "all 2 groups serve requests"),
    ]
