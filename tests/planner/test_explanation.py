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
from shardwright_planner.bars import Paint, bar, paragraph
from shardwright_planner.binding import binding_text, missed_text
from shardwright_planner.sensitivity import sensitivity
from shardwright_planner.wording import stage_runs, time_scale

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


def test_number_and_its_unit_stay_on_one_line():
    text = "time per output token misses 10 ms by 658 % on TP8"
    assert paragraph(text, 42) == ["time per output token misses 10 ms by", "658 % on TP8"]


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
                "Split because it does not fit: the weights are too large for fewer GPUs.",
                "Rule: several nodes: TP = GPUs of the node, PP = nodes.",
                "stage 2  WWWW",
                "weights 47.3, KV ",
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


LONG = "Also considered"


def test_long_lists_are_folded_until_the_whole_is_asked_for():
    found = PLANS["two nodes"]
    folded, whole = explain(found), explain(found, whole=True)
    assert f"... and {len(found.alternatives) - 6} more; --all shows them." in folded
    assert "more; --all" not in whole
    assert whole.count("\n") > folded.count("\n")


def test_notes_join_the_warnings_once():
    found = PLANS["two nodes"]
    text = explain(found, notes=("Read from the Hub.", found.warnings[0]))
    assert text.count("Read from the Hub.") == 1
    assert " ".join(text.split()).count(found.warnings[0]) == 1


@pytest.mark.parametrize(
    ("case", "text"),
    [
        pytest.param("two nodes", "memory of a GPU, for the weights. One step down, TP8 x PP1", id="weights"),
        pytest.param("one GPU", "none; nearest to its limit is the KV cache", id="none"),
        pytest.param("refused", "time per output token: up to", id="service level"),
        pytest.param("does not fit", "memory of a GPU, for the weights", id="nothing fits"),
    ],
)
def test_binding_constraint(case, text):
    assert binding_text(PLANS[case]).startswith(text)


def test_a_missed_service_level_names_the_closest_candidate_and_its_largest_term():
    text = " ".join(explain(PLANS["refused"]).split())
    step = PLANS["refused"].step_time
    # Not "Closest is": more nodes may come closer, and the plan's line on the SLO then names them.
    closest = "Closest for what it takes is TP8 on 1 node x 8 H100-SXM-80GB."
    assert f"No layout meets the service level {closest}" in text
    assert f"Largest term: {missed_text(PLANS['refused'])}." in text
    assert f"of {step.total_ms:.1f} ms per output token" in text


def variants_of(name, nodes):
    facts = find_model(name)
    assert facts is not None
    pool = Pool(gpu=find_gpu("H100"), gpus_per_node=8, nodes=nodes, name="h100")
    return sensitivity(PlanRequest(model=facts, pools=(pool,), service_level=SERVED))


@pytest.mark.parametrize("width", [40, 80, 100, 160])
def test_variants_fit_every_width_and_all_are_named(width):
    text = explain(PLANS["experts"], width=width, variants=variants_of("deepseek-ai/DeepSeek-V3", 2))
    section = text[text.index("What if") : text.index(LONG)]
    assert max(map(len, section.splitlines())) <= width
    changes = ("2x concurrency", "2x context", "FP8 weights", "FP8 KV cache")
    assert [change for change in changes if change not in section] == []


@pytest.mark.parametrize(
    ("times", "texts"),
    [
        pytest.param((64, 87), ["64 ms", "87 ms"], id="milliseconds"),
        pytest.param((4.2, 87), ["4.2 ms", "87 ms"], id="a digit more for the small one"),
        pytest.param((1900, 2100), ["1.9 s", "2.1 s"], id="seconds for both"),
        pytest.param((900, 30_000), ["0.90 s", "30.00 s"], id="digits for the small one"),
        pytest.param((45, 2400), ["45 ms", "2400 ms"], id="too small for seconds"),
    ],
)
def test_times_that_are_compared_have_one_unit(times, texts):
    scale = time_scale(*times)
    assert [scale.text(time) for time in times] == texts


def test_what_if_has_one_unit_in_each_column():
    # With FP8 weights the time to first token was "106 to 681 ms", with twice the context "0.5 to 3.0 s".
    level = ServiceLevel(concurrency=16)
    load = Workload(input_tokens=6000, output_tokens=256)
    pool = Pool(gpu=find_gpu("H100"), gpus_per_node=8, nodes=1, name="h100")
    question = PlanRequest(
        model=find_model("meta-llama/Llama-3.1-8B"), pools=(pool,), service_level=level, workload=load
    )
    rows = [v for v in sensitivity(question) if v.fits]
    highs = [v.plan.predicted.time_to_first_token_ms.high for v in rows]
    assert min(highs) < 2000 <= max(highs), "else nothing would be mixed"
    text = explain(plan(question), width=120, variants=rows)
    section = text[text.index("What if") : text.index(LONG)]
    units = [re.findall(r" to [0-9.]+ (m?s)", line) for line in section.splitlines()[2:7]]
    assert units == [["ms", "s"]] * 5


def test_what_if_says_by_how_much_the_service_level_is_missed():
    pool = Pool(gpu=find_gpu("H100"), gpus_per_node=8, nodes=1, name="h100")
    question = PlanRequest(
        model=find_model("meta-llama/Llama-3.1-70B"),
        pools=(pool,),
        service_level=ServiceLevel(time_per_output_token_s=0.001),
    )
    text = explain(plan(question), width=120, variants=sensitivity(question))
    for change in ("as asked", "2x concurrency", "2x context", "FP8 weights", "FP8 KV cache"):
        assert re.search(rf"  {change} .* missed by \d+ %\n", text)


def test_a_variant_that_does_not_fit_says_why():
    text = explain(PLANS["does not fit"], variants=variants_of(LARGE, 1))
    assert "2x concurrency: does not fit on 8 H100-SXM-80GB GPUs" in " ".join(text.split())


STAGES = PLANS["two nodes"].stages


@pytest.mark.parametrize(
    ("stages", "names"),
    [
        pytest.param(STAGES, ["stage 1", "stage 2"], id="all differ"),
        pytest.param((STAGES[0], *STAGES), ["stages 1-2", "stage 3"], id="two alike"),
        pytest.param((STAGES[0],) * 3, ["stages 1-3"], id="all alike"),
        pytest.param((STAGES[0],), ["stage 1"], id="one"),
    ],
)
def test_stages_that_are_alike_are_named_together(stages, names):
    assert [name for name, _ in stage_runs(stages)] == names


def caveat_texts(name, nodes=1, *, level=None, pins=None, rdma=None, rate=None, gpu="H100"):
    facts = find_model(name)
    assert facts is not None
    pool = Pool(gpu=find_gpu(gpu), gpus_per_node=8, nodes=nodes, name="pool", rdma=rdma, nic_bytes_per_s=rate)
    question = PlanRequest(
        model=facts, pools=(pool,), service_level=level or ServiceLevel(), pins=pins or Pins()
    )
    return plan(question).warnings


@pytest.mark.parametrize(
    ("level", "pins", "text"),
    [
        pytest.param(
            SERVED,
            Pins(tensor=8),
            "Over-parallelised: TP1 on 1 GPU would meet the SLO; the pinned sizes take 8.",
            id="with a service level",
        ),
        pytest.param(
            None,
            Pins(tensor=2, pipeline=2),
            "Over-parallelised: TP1 on 1 GPU holds the load; the pinned sizes take 4.",
            id="without",
        ),
        pytest.param(SERVED, Pins(tensor=1), None, id="as small as can be"),
        pytest.param(SERVED, None, None, id="not pinned"),
    ],
)
def test_over_parallelised(level, pins, text):
    found = caveat_texts("meta-llama/Llama-3.1-8B", level=level, pins=pins)
    assert [w for w in found if w.startswith("Over-")] == ([] if text is None else [text])


@pytest.mark.parametrize(
    ("rdma", "rate", "texts"),
    [
        pytest.param(
            None,
            None,
            ["network rate and RDMA are not known; 400 Gbit/s per node with RDMA is assumed"],
            id="nothing known",
        ),
        pytest.param(True, None, ["network rate is not known"], id="RDMA"),
        pytest.param(False, 12.5e9, ["RDMA is absent"], id="TCP"),
        pytest.param(None, 50e9, ["Whether the nodes have RDMA is not known"], id="rate"),
        pytest.param(True, 50e9, [], id="all known"),
    ],
)
def test_network_of_several_nodes(rdma, rate, texts):
    found = [w for w in caveat_texts(LARGE, 2, rdma=rdma, rate=rate) if "RDMA" in w or "network rate" in w]
    assert len(found) == len(texts)
    assert all(text in warning for text, warning in zip(texts, found, strict=True))


def test_nodes_of_pcie_boards_are_not_taken_for_nodes_with_fast_networks():
    found = caveat_texts(LARGE, 4, gpu="L40S")
    assert any("100 Gbit/s per node with RDMA is assumed" in warning for warning in found)


def test_expert_parallelism_over_nodes_is_said_to_be_unmeasured():
    pins = Pins(tensor=8, data=2)
    found = caveat_texts("deepseek-ai/DeepSeek-V3", 2, pins=pins)
    assert [w for w in found if w.startswith("Expert parallelism over nodes is unmeasured")]
    assert not [w for w in caveat_texts(LARGE, 2) if w.startswith("Expert")]


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
