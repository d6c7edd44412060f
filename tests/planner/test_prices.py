"""GPU prices: the cheapest plan that meets the goal, among pools of different GPUs."""

from dataclasses import replace

import pytest

from shardwright_planner import (
    PlanInputError,
    PlanRequest,
    Pool,
    ServiceLevel,
    Workload,
    explain,
    find_gpu,
    find_model,
    plan,
)
from shardwright_planner.binding import binding_text
from shardwright_planner.report import render_page, survey
from shardwright_planner.wording import cost_text


def pool(gpu, price, nodes=1):
    return Pool(gpu=find_gpu(gpu), gpus_per_node=8, nodes=nodes, name=gpu, price_per_gpu_hour=price)


def question(*pools, goal_s=None, name="meta-llama/Llama-3.1-70B"):
    facts = find_model(name)
    assert facts is not None
    level = ServiceLevel(concurrency=8, time_per_output_token_s=goal_s)
    return PlanRequest(model=facts, pools=pools, workload=Workload(), service_level=level)


def planned(*pools, goal_s=None, name="meta-llama/Llama-3.1-8B"):
    return plan(question(*pools, goal_s=goal_s, name=name))


def test_the_cheapest_gpu_that_is_fast_enough_is_taken():
    cheap = planned(pool("H100", 4.0), pool("L40S", 1.0), goal_s=0.060)
    assert (cheap.gpu, cheap.gpus_per_replica, cheap.cost_per_hour) == ("L40S", 1, 1.0)
    quick = planned(pool("H100", 4.0), pool("L40S", 1.0), goal_s=0.012)
    assert (quick.gpu, quick.cost_per_hour) == ("H100-SXM-80GB", 4.0)


def test_more_gpus_may_be_the_cheaper_plan():
    chosen = planned(pool("H200", 20.0), pool("A100", 2.0), name="meta-llama/Llama-3.1-70B")
    assert chosen.gpu == "A100-SXM-80GB"
    assert chosen.gpus_per_replica > 1
    dearer = next(other for other in chosen.alternatives if other.pool == "H200" and other.feasible)
    assert "costs" in dearer.reason


def test_a_pool_without_a_price_makes_gpus_count():
    chosen = planned(pool("H200", 20.0), pool("A100", None), name="meta-llama/Llama-3.1-70B")
    assert chosen.gpus_per_replica == 2


def test_costs_are_told_with_the_plan_and_with_every_candidate():
    chosen = planned(pool("H200", 20.0), pool("A100", 2.0), name="meta-llama/Llama-3.1-70B")
    cost = (
        f"{2 * chosen.gpus_per_replica:.2f} per hour for one replica ({chosen.gpus_per_replica} GPUs at 2.00)"
    )
    assert f"\nCost: {cost}.\n" in explain(chosen, width=120)
    page = render_page(survey(question(pool("H200", 20.0), pool("A100", 2.0))))
    assert f"Cost: {cost}." in page
    assert '<th class="n" scope="col">per hour</th>' in page
    assert "cost of one replica per hour" in page
    unpriced = render_page(survey(question(pool("H200", None))))
    assert "per hour" not in unpriced
    assert "GPUs of one replica" in unpriced


def test_the_reason_says_what_the_next_kind_of_gpu_would_cost():
    # Four of the dearer GPUs are fewer than eight of the cheaper, and fast enough as well.
    chosen = planned(pool("H100", 3.9), pool("A100", 1.8), goal_s=0.03, name="meta-llama/Llama-3.1-70B")
    assert (chosen.gpu, chosen.gpus_per_replica) == ("A100-SXM-80GB", 8)
    assert chosen.reason.endswith(
        "It costs 14.40 per hour, the next of another kind 15.60 (TP4 on H100-SXM-80GB)"
    )
    assert binding_text(chosen).startswith("the service level. One step down, TP4 x PP1 on 4 GPUs: fits, but")


def test_several_replicas_cost_their_number():
    load = Workload(requests_per_second=40.0)
    found = plan(replace(question(pool("H100", 4.0), name="meta-llama/Llama-3.1-8B"), workload=load))
    assert found.recommended_replicas > 1
    assert cost_text(found).endswith(
        f", {4 * found.recommended_replicas:.2f} for {found.recommended_replicas}"
    )


@pytest.mark.parametrize("price", [0.0, -1.0, float("nan")])
def test_a_price_that_is_none_is_refused(price):
    with pytest.raises(PlanInputError, match=r"hardware\.gpuHourPrices"):
        planned(pool("H100", price))
