"""The explanation is whole, fits its width, and needs nothing but the plan."""

import re

import pytest

from shardwright_planner import (
    Pins,
    Plan,
    PlanRequest,
    Policy,
    Pool,
    ServiceLevel,
    Workload,
    explain,
    find_gpu,
    find_model,
    plan,
)
from shardwright_planner.bars import Paint, bar

ANSI = re.compile(r"\x1b\[[0-9]+m")


def answer(name, nodes=1, *, level=None, load=None, pins=None):
    facts = find_model(name)
    assert facts is not None
    pool = Pool(gpu=find_gpu("H100"), gpus_per_node=8, nodes=nodes, name="h100")
    return plan(
        PlanRequest(
            model=facts,
            pools=(pool,),
            workload=load or Workload(),
            service_level=level or ServiceLevel(),
            pins=pins or Pins(),
        )
    )


LARGE = "meta-llama/Llama-3.1-405B-Instruct"
SERVED = ServiceLevel(concurrency=32, time_per_output_token_s=0.150, time_to_first_token_s=30.0)
STRICT = ServiceLevel(time_per_output_token_s=0.001, policy=Policy.REQUIRE)
PLANS = {
    "two nodes": answer(LARGE, 2, level=SERVED, load=Workload(max_model_length=8192)),
    "does not fit": answer(LARGE, 1, level=SERVED),
    "one GPU": answer("meta-llama/Llama-3.1-8B"),
    "refused": answer("meta-llama/Llama-3.1-70B", level=STRICT),
    "experts": answer("deepseek-ai/DeepSeek-V3", 2),
    "replicated heads": answer("meta-llama/Llama-3.1-70B", 2, pins=Pins(tensor=16, cross_node_tensor=True)),
    "replicas": answer("meta-llama/Llama-3.1-8B", load=Workload(requests_per_second=100.0)),
}


@pytest.mark.parametrize("width", [40, 80, 100, 160])
@pytest.mark.parametrize("found", PLANS.values(), ids=PLANS.keys())
def test_no_line_is_wider_than_asked(found, width):
    assert max(map(len, explain(found, width=width).splitlines())) <= width


@pytest.mark.parametrize("found", PLANS.values(), ids=PLANS.keys())
def test_colours_come_only_when_asked_and_change_no_letter(found):
    plain, coloured = explain(found), explain(found, color=True)
    assert ANSI.search(plain) is None
    assert ANSI.sub("", coloured) == plain
    assert coloured != plain


@pytest.mark.parametrize("found", PLANS.values(), ids=PLANS.keys())
def test_a_plan_read_back_from_its_status_explains_itself_alike(found):
    again = Plan.model_validate(found.to_wire())
    assert again == found
    assert explain(again) == explain(found)


@pytest.mark.parametrize(
    ("case", "texts"),
    [
        pytest.param(
            "two nodes",
            [
                "meta-llama/Llama-3.1-405B-Instruct: TP8 x PP2 on 2 nodes x 8 H100-SXM-80GB",
                "SLO: Predicted to be met at 32 concurrent requests, high ends included.",
                "Split because it does not fit: the weights need more than fewer GPUs have.",
                "Rule: several nodes: TP = GPUs of the node, PP = nodes.",
                "stage 2  WWWW",
                "weights 47.3, KV 18.0, activation 2.1",
                "meets 150 ms; low confidence",
                "252 AllReduce of 512 KiB over NVLink",
                "TP4 x PP4",
                "over nodes is unmeasured: four public memory logs",
            ],
            id="two nodes",
        ),
        pytest.param(
            "does not fit",
            ["does not fit", "missing ", "What would help", "Allow 2 nodes: TP8 x PP2 on 16"],
            id="does not fit",
        ),
        pytest.param("one GPU", ["Not split: one GPU holds", "no goal"], id="one GPU"),
        pytest.param("refused", [": refused", "misses 1 ms", "Relax the SLO"], id="refused"),
        pytest.param("experts", ["with expert parallelism", "all-to-all"], id="experts"),
        pytest.param(
            "replicated heads",
            ["8 KV heads over TP 16", "over network", "crosses nodes"],
            id="replicated heads",
        ),
        pytest.param("replicas", ["Recommended replicas"], id="replicas"),
    ],
)
def test_the_text_says(case, texts):
    text = " ".join(explain(PLANS[case]).split())
    assert [wanted for wanted in texts if " ".join(wanted.split()) not in text] == []


@pytest.mark.parametrize(
    ("sizes", "total", "want"),
    [
        pytest.param((5, 5), 10, "aaaaabbbbb", id="full"),
        pytest.param((3, 3), 10, "aaabbb....", id="part"),
        pytest.param((0, 0), 10, "..........", id="empty"),
        pytest.param((9, 9), 10, "aaaaabbbbb", id="more than the whole"),
        pytest.param((9.4, 0.6), 10, "aaaaaaaaab", id="a sliver is seen"),
    ],
)
def test_bars_add_up(sizes, total, want):
    parts = [(size, letter, "blue") for size, letter in zip(sizes, "ab", strict=True)]
    assert bar(parts, total, 10, Paint(color=False)) == want
