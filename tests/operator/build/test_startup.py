"""The start-up budget and the probes that share it with the engine's own limits."""

from collections.abc import Callable

import pytest

from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.build.startup import startup_budget_s
from shardwright_operator.build.template import render_templates
from shardwright_planner.plan import Plan

MODEL = {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}}


@pytest.mark.parametrize(
    ("weights_bytes", "recovery", "expected"),
    [
        pytest.param(16_000_000_000, {}, 670, id="8B: 64 s of reading, rounded up to a probe"),
        pytest.param(811_706_548_224, {}, 3850, id="405B: most of it reading"),
        pytest.param(811_706_548_224, {"startupTimeout": "15m"}, 900, id="the user's word"),
    ],
)
def test_the_budget_grows_with_the_weights_and_the_users_word_wins(
    weights_bytes: int, recovery: dict[str, object], expected: int, make_plan: Callable[..., Plan]
) -> None:
    spec = parse_spec({**MODEL, "recovery": recovery})
    assert startup_budget_s(spec.recovery, make_plan(weights_bytes=weights_bytes)) == expected


def test_one_budget_for_probe_and_engine(owner: Owner, pool: PoolSelection, two_nodes: Plan) -> None:
    leader, worker = render_templates(parse_spec(MODEL), two_nodes, pool, owner)
    assert worker is not None
    (engine,) = leader["spec"]["containers"]
    probe = engine["startupProbe"]
    limits = {
        probe["periodSeconds"] * probe["failureThreshold"],
        int(engine["args"][engine["args"].index("--distributed-timeout-seconds") + 1]),
        int(next(e["value"] for e in engine["env"] if e["name"] == "VLLM_ENGINE_READY_TIMEOUT_S")),
    }
    assert limits == {3850}
    assert not {"startupProbe", "readinessProbe", "livenessProbe"} & worker["spec"]["containers"][0].keys()


def test_workers_outlive_the_leaders_drain(owner: Owner, pool: PoolSelection, two_nodes: Plan) -> None:
    leader, worker = render_templates(parse_spec(MODEL), two_nodes, pool, owner)
    assert worker is not None
    (engine,) = leader["spec"]["containers"]
    drain = int(engine["args"][engine["args"].index("--shutdown-timeout") + 1])
    leader_delay = engine["lifecycle"]["preStop"]["sleep"]["seconds"]
    worker_delay = worker["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert leader["spec"]["terminationGracePeriodSeconds"] > leader_delay + drain
    assert worker_delay >= leader_delay + drain
    assert worker["spec"]["terminationGracePeriodSeconds"] > worker_delay + 13
