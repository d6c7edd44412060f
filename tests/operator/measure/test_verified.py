"""What the engine says, held against the plan: the term that is off, by how much, and stable texts."""

from dataclasses import replace
from typing import Any

import pytest

from shardwright_operator.observe.conditions import condition_of
from shardwright_operator.observe.measurement import Load, Measurement
from shardwright_operator.status.verified import measured_section, plan_verified
from simulated_world import SimulatedWorld

SPEC: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
    "slo": {"concurrency": 32},
    "workload": {"inputTokens": 1000, "outputTokens": 200},
}


@pytest.fixture
def world() -> SimulatedWorld:
    found = SimulatedWorld(SPEC)
    found.settle()
    return found


def measurement(world: SimulatedWorld, *, tokens: float = 1.0, load: Load | None = None) -> Measurement:
    (pod,) = world.store.serving_leaders()
    planned = world.status["plan"]
    return Measurement(
        group=0,
        pod_uid=pod.uid,
        pods_hash=pod.pods_hash,
        kv_cache_blocks=int(planned["kvCacheTokens"] * tokens) // 16,
        kv_block_tokens=16,
        kv_cache_tokens=int(planned["kvCacheTokens"] * tokens),
        max_model_length=planned["maxModelLength"],
        startup_s=95,
        load=load,
    )


def under_load(world: SimulatedWorld, **changed: Any) -> Load:
    low = world.status["plan"]["predicted"]["timePerOutputTokenMs"]["low"]
    first = world.status["plan"]["predicted"]["timeToFirstTokenMs"]["low"]
    values = {
        "requests": 400,
        "running": 30.0,
        "input_tokens": 1000.0,
        "time_per_output_token_ms": low,
        "time_to_first_token_ms": first,
        "preemptions": 0,
    }
    return Load(**{**values, **changed})


def told(world: SimulatedWorld, found: Measurement) -> tuple[str, str, str]:
    world.store.measured(world.key, found)
    world.reconcile()
    condition = condition_of(world.status, "PlanVerified")
    return condition["status"], condition["reason"], condition["message"]


def test_nothing_is_said_before_anything_is_known(world: SimulatedWorld) -> None:
    assert "measured" not in world.status
    assert world.condition("PlanVerified") is None


def test_engine_as_planned(world: SimulatedWorld) -> None:
    status, reason, message = told(world, measurement(world, tokens=1.02))
    planned = world.status["plan"]["kvCacheTokens"]

    assert (status, reason) == ("True", "AsPlanned")
    assert message.endswith(f"tokens, {planned:,} were planned")
    assert world.status["measured"] == {
        "group": 0,
        "revision": world.status["revision"],
        "kvCacheBlocks": int(planned * 1.02) // 16,
        "kvBlockTokens": 16,
        "kvCacheTokens": int(planned * 1.02),
        "plannedKvCacheTokens": planned,
        "maxModelLength": world.status["plan"]["maxModelLength"],
        "startupSeconds": 95,
    }


def test_an_engine_that_refuses_chats_is_told_of_once(world: SimulatedWorld) -> None:
    for _ in range(2):
        told(world, replace(measurement(world), chat_template=False))
    assert world.status["measured"]["chatTemplate"] is False
    assert world.condition("Ready") == ("True", "GroupsReady"), "not every model is for chats"
    (event,) = [e for e in world.events if e.reason == "NoChatTemplate"]
    assert event.message.endswith("name it in spec.model.chatTemplateRef")

    told(world, replace(measurement(world), chat_template=True))
    assert world.status["measured"]["chatTemplate"] is True
    assert len([e for e in world.events if e.reason == "NoChatTemplate"]) == 1


@pytest.mark.parametrize(
    ("tokens", "changed", "text"),
    [
        pytest.param(0.8, None, "20% less than the", id="fewer KV tokens"),
        pytest.param(1.5, None, "50% more than the", id="more KV tokens"),
        pytest.param(1.0, {"time_per_output_token_ms": 5000.0}, "time per output token is ", id="slow"),
        pytest.param(1.0, {"time_to_first_token_ms": 90000.0}, "time to first token is ", id="late"),
        pytest.param(
            1.0, {"preemptions": 7}, "7 requests lost their KV cache with 30 running", id="preempted"
        ),
    ],
)
def test_the_term_that_is_off(
    world: SimulatedWorld, tokens: float, changed: dict[str, Any] | None, text: str
) -> None:
    load = None if changed is None else under_load(world, **changed)
    status, reason, message = told(world, measurement(world, tokens=tokens, load=load))

    assert (status, reason) == ("False", "DiffersFromPlan")
    assert text in message


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"running": 200.0}, id="more requests at a time"),
        pytest.param({"input_tokens": 9000.0}, id="longer prompts"),
    ],
)
def test_slowness_under_another_load_is_no_fault_of_the_plan(
    world: SimulatedWorld, changed: dict[str, Any]
) -> None:
    load = under_load(world, time_per_output_token_ms=5000.0, preemptions=9, **changed)
    status, _, message = told(world, measurement(world, load=load))

    assert status == "True"
    assert "the load is beyond the plan's" in message


def test_each_turn_is_an_event_with_the_term_that_is_off(world: SimulatedWorld) -> None:
    world.events.clear()
    as_planned = told(world, measurement(world))
    fewer = told(world, measurement(world, tokens=0.8))
    # Another figure for the same term is no turn.
    told(world, measurement(world, tokens=0.7))
    again = told(world, measurement(world))

    assert [(str(e.type), e.reason, e.message) for e in world.events] == [
        ("Normal", *as_planned[1:]),
        ("Warning", *fewer[1:]),
        ("Normal", *again[1:]),
    ]


def test_small_changes_are_not_written(world: SimulatedWorld) -> None:
    load = under_load(world)
    told(world, measurement(world, load=load))
    world.writes.clear()
    for running, step in ((31.0, 1.05), (28.0, 0.95), (30.0, 1.1)):
        assert load.time_per_output_token_ms is not None
        moved = replace(load, running=running, time_per_output_token_ms=load.time_per_output_token_ms * step)
        world.store.measured(world.key, measurement(world, load=moved))
        world.reconcile()
    world.store.measured(world.key, measurement(world))
    world.reconcile()

    assert world.writes == [], "a quiet minute does not take back what was measured under load"

    told(world, measurement(world, load=replace(load, running=4.0)))
    assert world.writes == ["status"]


def test_a_new_operator_writes_nothing(world: SimulatedWorld) -> None:
    told(world, measurement(world, load=under_load(world)))
    world.writes.clear()
    world.restart_operator()
    world.reconcile()
    world.store.measured(world.key, measurement(world, load=under_load(world, running=29.0)))
    world.reconcile()

    assert world.writes == []
    assert world.status["measured"]["kvBlockTokens"] == 16


def test_another_revision_has_not_been_measured(world: SimulatedWorld) -> None:
    told(world, measurement(world))
    world.edit(lambda spec: spec.update(engine={"env": [{"name": "A", "value": "b"}]}))
    world.settle()

    assert "measured" not in world.status
    assert world.condition("PlanVerified") is None


def test_section_of_nothing(world: SimulatedWorld) -> None:
    from shardwright_operator.build.revision import from_manifest

    (manifest,) = world.of_kind("ControllerRevision").values()
    revision = from_manifest(manifest)
    assert measured_section({"revision": "another"}, None, revision) is None
    assert plan_verified(revision.plan, {}).message == "the engine says nothing that the plan predicts"
