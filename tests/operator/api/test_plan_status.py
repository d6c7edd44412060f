"""The plan in a status: one line for each candidate, and whole again when it is read back."""

import json
import re
from typing import Any

import pytest

from shardwright_operator.api.plan_status import plan_of, plan_section
from shardwright_operator.api.status import ModelDeploymentStatus, cut_to_bounds
from shardwright_planner import (
    Plan,
    PlanRequest,
    Policy,
    Pool,
    ServiceLevel,
    explain,
    find_gpu,
    find_model,
    plan,
)
from simulated_world import SimulatedWorld


def answer(name: str, *gpus: str, nodes: int = 2, level: ServiceLevel | None = None) -> Plan:
    facts = find_model(name)
    assert facts is not None
    pools = tuple(Pool(gpu=find_gpu(gpu), gpus_per_node=8, nodes=nodes, name=gpu) for gpu in gpus)
    return plan(PlanRequest(model=facts, pools=pools, service_level=level or ServiceLevel()))


LARGE, SPARSE = "meta-llama/Llama-3.1-405B-Instruct", "deepseek-ai/DeepSeek-V3"
MET = ServiceLevel(time_per_output_token_s=0.15, time_to_first_token_s=30.0)
MISSED = ServiceLevel(time_per_output_token_s=0.001, policy=Policy.REQUIRE)
PLANS = {
    "no service level": answer(LARGE, "H100"),
    "met": answer(LARGE, "H100", level=MET),
    "missed": answer(LARGE, "H100", level=MISSED),
    "does not fit": answer(LARGE, "H100", nodes=1),
    "experts": answer(SPARSE, "H200", level=MET),
    "two kinds of GPUs": answer(SPARSE, "H100", "H200", level=MET),
}


@pytest.mark.parametrize("found", PLANS.values(), ids=PLANS.keys())
def test_a_plan_that_is_read_back_is_the_same_plan(found: Plan) -> None:
    wire = json.loads(json.dumps(plan_section(found)))
    assert plan_of(wire) == found
    assert explain(plan_of(wire), whole=True) == explain(found, whole=True)


@pytest.mark.parametrize("found", PLANS.values(), ids=PLANS.keys())
def test_each_candidate_is_one_line_and_the_status_shrinks(found: Plan) -> None:
    wire = plan_section(found)
    assert len(wire["considered"]) == len(found.alternatives)
    assert not any("\n" in line for line in wire["considered"])
    assert "alternatives" not in wire
    assert len(json.dumps(wire)) < len(json.dumps(found.to_wire()))


def test_what_a_line_says() -> None:
    assert plan_section(PLANS["met"])["considered"][0] == (
        "TP4 x PP4, 2 nodes, meets the SLO: fits, but with 4 stages instead of 2 at equal GPUs"
    )
    assert plan_section(PLANS["missed"])["considered"][0].startswith(
        "TP4 x PP4, 2 nodes, misses the SLO: fits, "
    )
    assert plan_section(PLANS["no service level"])["considered"][0] == (
        "TP4 x PP4, 2 nodes: fits, but with 4 stages instead of 2 at equal GPUs"
    )
    first = plan_section(PLANS["does not fit"])["considered"][0]
    assert first.startswith("TP4 x PP2, 1 node: ")


@pytest.mark.parametrize("found", PLANS.values(), ids=PLANS.keys())
def test_the_plan_fits_its_schema(found: Plan) -> None:
    status = {"plan": plan_section(found)}
    assert cut_to_bounds(status) == status
    ModelDeploymentStatus.model_validate(status)


@pytest.mark.parametrize("found", PLANS.values(), ids=PLANS.keys())
def test_lines_of_operators_that_did_not_say_what_is_met_are_read(found: Plan) -> None:
    wire = plan_section(found)
    words = {True: ", meets", False: ", misses", None: ", fits"}
    for place, each in enumerate(found.alternatives):
        head, _, reason = wire["considered"][place].partition(": ")
        head = re.sub(", (meets the SLO|misses the SLO|latency not predicted)$", "", head)
        verdict = words[each.slo_predicted] if each.feasible else ""
        wire["considered"][place] = f"{head}{verdict}: {reason}"
    assert plan_of(wire) == found


def test_a_plan_by_the_first_operators_is_read_as_it_is() -> None:
    found = PLANS["experts"]
    assert plan_of(found.to_wire()) == found
    ModelDeploymentStatus.model_validate({"plan": found.to_wire()})


def test_a_line_of_a_later_version_is_refused_and_not_dropped() -> None:
    wire = {**plan_section(PLANS["met"]), "considered": ["four by four"]}
    with pytest.raises(ValueError, match="'four by four' is no candidate"):
        plan_of(wire)


def test_an_operator_that_finds_an_older_status_writes_that_and_touches_nothing_else() -> None:
    large: dict[str, Any] = {
        "model": {"name": LARGE},
        "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    }
    world = SimulatedWorld(large)
    world.settle()
    whole = plan_of(world.status["plan"])
    revisions = world.of_kind("ControllerRevision")
    assert [Plan.model_validate(r["data"]["plan"]) for r in revisions.values()] == [whole]
    world.status["plan"] = whole.to_wire()
    world.touch(world.resource)
    world.restart_operator()
    world.writes.clear()
    world.settle()

    assert world.writes == ["status"]
    assert plan_of(world.status["plan"]) == whole
    assert world.of_kind("ControllerRevision") == revisions
