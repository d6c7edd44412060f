"""Children that others change: put right without costing a group, and told when it cannot be done."""

from datetime import timedelta
from typing import Any

import pytest

from shardwright_operator.api.constants import Label
from shardwright_operator.apply.notes import WriteLedger
from shardwright_operator.decide import decide
from shardwright_operator.decide.decision import Apply, Decision
from shardwright_operator.decide.drift import body_digest
from shardwright_operator.observe.conditions import condition_of
from shardwright_operator.observe.views import ChildKind, WriteNote
from simulated_world import SimulatedWorld

LLAMA_405B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
}
LLAMA_8B: dict[str, Any] = {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}}
SETS = ["llama-0-leader", "llama-0-worker"]


@pytest.fixture
def world() -> SimulatedWorld:
    return SimulatedWorld(LLAMA_405B).settled()


@pytest.mark.parametrize("label", [Label.MANAGED_BY, Label.DEPLOYMENT, Label.GROUP_INDEX, Label.ROLE])
@pytest.mark.parametrize("name", SETS)
def test_a_label_taken_from_a_set_comes_back_and_restarts_nothing(
    world: SimulatedWorld, name: str, label: str
) -> None:
    before = dict(world.get("StatefulSet", name)["metadata"]["labels"])
    world.unlabel("StatefulSet", name, label)
    world.settle()
    assert world.get("StatefulSet", name)["metadata"]["labels"] == before
    assert (world.trace, world.status["ready"]) == ([], "1/1")


@pytest.mark.parametrize("label", [Label.MANAGED_BY, Label.DEPLOYMENT])
def test_a_label_taken_from_the_set_of_a_group_of_one_comes_back(label: str) -> None:
    world = SimulatedWorld(LLAMA_8B)
    world.settle()
    world.trace.clear()
    world.unlabel("StatefulSet", "llama-0-leader", label)
    world.settle()
    assert label in world.get("StatefulSet", "llama-0-leader")["metadata"]["labels"]
    assert (world.trace, world.status["ready"]) == ([], "1/1")


@pytest.mark.parametrize("name", SETS)
def test_a_set_that_somebody_scales_up_is_put_back_beside_a_group_that_serves(
    world: SimulatedWorld, name: str
) -> None:
    body = world.get("StatefulSet", name)
    wanted = dict(body["spec"])
    body["spec"]["replicas"] = 3
    body["metadata"]["generation"] += 1
    world.touch(body)
    world.controllers()
    world.kubelets()
    assert len(world.pods) == 4
    world.reconcile()
    group = world.status["groups"][0]
    assert (group["phase"], group["readyMembers"], len(group["nodes"])) == ("Ready", 2, 2)
    words = f"serves requests; 2 pods go again, as {name} was scaled up by somebody"
    assert (group["message"], world.condition("Ready")) == (words, ("True", "GroupsReady"))
    world.settle()
    assert (world.get("StatefulSet", name)["spec"], len(world.pods)) == (wanted, 2)
    assert (world.status["groups"][0]["message"], group["restarts"]) == ("serves requests", 0)


def scaled_to_0(world: SimulatedWorld, name: str) -> None:
    body = world.get("StatefulSet", name)
    body["spec"]["replicas"] = 0
    body["metadata"]["generation"] += 1
    world.touch(body)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param(
            "llama-0-leader", "the leader set llama-0-leader was scaled to 0 by somebody", id="leader"
        ),
        pytest.param(
            "llama-0-worker", "the worker set llama-0-worker was scaled down by somebody", id="worker"
        ),
    ],
)
def test_a_set_that_somebody_scales_down_is_told_as_the_cause(
    world: SimulatedWorld, name: str, said: str
) -> None:
    # Of the leader set the cause was Unknown, "waiting for 2 pods to go", and the group came back uncounted.
    scaled_to_0(world, name)
    world.reconcile()
    group = world.status["groups"][0]
    assert (group["phase"], group["reason"], group["message"]) == ("Restarting", "MemberLost", said)
    assert [(e.reason, e.message) for e in world.events if e.type == "Warning"] == [
        ("MemberLost", f"group 0: {said}; the whole group starts again")
    ]
    world.settle()
    group = world.status["groups"][0]
    assert (world.status["ready"], group["restarts"], group["firstFailure"]["message"]) == ("1/1", 1, said)


def test_the_leader_set_of_a_group_of_one_that_somebody_scales_down_is_told_as_the_cause() -> None:
    world = SimulatedWorld(LLAMA_8B)
    world.settle()
    scaled_to_0(world, "llama-0-leader")
    world.settle()
    group = world.status["groups"][0]
    said = "the leader set llama-0-leader was scaled to 0 by somebody"
    assert (world.status["ready"], group["restarts"], group["firstFailure"]["message"]) == ("1/1", 1, said)


def test_a_leader_set_that_somebody_scales_down_before_the_group_has_formed_is_told_as_the_cause() -> None:
    world = SimulatedWorld(LLAMA_405B)
    world.reconcile()
    world.controllers()
    scaled_to_0(world, "llama-0-leader")
    world.reconcile()
    group = world.status["groups"][0]
    said = "the leader set llama-0-leader was scaled to 0 by somebody; waiting for 2 pods to go"
    assert (group["phase"], group["reason"], group["message"]) == ("Restarting", "MemberLost", said)


@pytest.mark.parametrize(
    ("kind", "name", "path"),
    [
        pytest.param("Service", "llama", ("spec", "selector"), id="Service"),
        pytest.param("NetworkPolicy", "llama-0", ("spec", "podSelector", "matchLabels"), id="NetworkPolicy"),
        pytest.param("PodDisruptionBudget", "llama-0", ("spec", "selector", "matchLabels"), id="budget"),
    ],
)
def test_a_key_added_to_a_selector_is_drift(
    world: SimulatedWorld, kind: str, name: str, path: tuple[str, ...]
) -> None:
    body = world.get(kind, name)
    at: dict[str, Any] = body
    for part in path:
        at = at[part]
    at["team"] = "search"
    world.touch(body)
    ((write,),) = world.decision().stages
    assert (write.name, write.why) == (name, f'{".".join(path)}.team: not wanted, found "search"')


def with_note(world: SimulatedWorld, note: WriteNote) -> Decision:
    observed = world.store.observe(world.key, notes={(note.kind, note.name): note})
    return decide(observed, world.now, world.settings)


def overridden(decision: Decision) -> str | None:
    return condition_of(decision.status or {}, "FieldsOverridden").get("message")


def test_a_field_that_the_server_alters_is_told_once_and_left(world: SimulatedWorld) -> None:
    budget = world.get("PodDisruptionBudget", "llama-0")
    first = world.store.observe(world.key).children[ChildKind.DISRUPTION_BUDGET, "llama-0"]
    assert first.owner_uid
    wanted = dict(budget["spec"])
    budget["spec"]["minAvailable"] = 1
    world.touch(budget)
    ((write,),) = world.decision().stages
    child = world.store.observe(world.key).children[ChildKind.DISRUPTION_BUDGET, "llama-0"]
    note = WriteNote(
        kind=ChildKind.DISRUPTION_BUDGET,
        name="llama-0",
        digest=write.digest,
        altered=write.why,
        answer=body_digest(child),
    )
    decision = with_note(world, note)
    assert wanted["minAvailable"] == 2
    assert decision.stages == ()
    assert overridden(decision) == (
        "PodDisruptionBudget llama-0: the API server keeps something else than is applied "
        "(spec.minAvailable: wanted 2, found 1), most likely by a webhook or a policy"
    )
    assert [(e.type, e.reason) for e in decision.events] == [("Warning", "FieldOverridden")]
    assert world.condition("Ready") == ("True", "GroupsReady")


@pytest.mark.parametrize(
    ("due_s", "told", "again_s"),
    [
        pytest.param(10, True, 10, id="before the next attempt"),
        pytest.param(-10, True, 20, id="after it, while it may be undone again"),
        pytest.param(-31, False, None, id="when it has held"),
    ],
)
def test_a_field_that_somebody_has_changed_is_told_while_it_may_be_changed_again(
    world: SimulatedWorld, due_s: int, told: bool, again_s: float | None
) -> None:
    note = WriteNote(
        kind=ChildKind.SERVICE,
        name="llama",
        digest="any",
        retry_at=world.now + timedelta(seconds=due_s),
        undone="spec.type: wanted A, found B",
        repeats=1,
    )
    decision = with_note(world, note)
    # A single edit was said to be one that "somebody changes back".
    message = (
        "Service llama: somebody has changed what was applied (spec.type: wanted A, found B), and it was "
    )
    message += "applied again"
    assert (overridden(decision), decision.requeue_after_s) == (message if told else None, again_s)


def test_a_fight_over_a_field_says_how_often_it_was_put_right(world: SimulatedWorld) -> None:
    ledger, kind, name = WriteLedger(), ChildKind.SERVICE, "llama"
    write = Apply(
        kind=kind,
        name=name,
        manifest=world.get("Service", name),
        owned=True,
        digest="same",
        why="spec.type: wanted A, found B",
    )
    told = []
    for _ in range(4):
        note = ledger.written(world.key, write, altered=None, answer="", now=world.now)
        told.append(overridden(with_note(world, note)))
    once = f"Service llama: somebody has changed what was applied ({write.why}), and it was applied again"
    assert told == [
        None,
        once,
        f"{once}, 2 times in short order: settle who sets it",
        f"{once}, 3 times in short order: settle who sets it",
    ]
