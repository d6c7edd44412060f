"""The report is one closed file: well formed, escaped, drawn within its bounds, and the same each time."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree as Xml

import pytest

from shardwright_planner import (
    Pins,
    PlanRequest,
    Policy,
    Pool,
    ServiceLevel,
    Workload,
    find_gpu,
    find_model,
    model_from_config,
)
from shardwright_planner.report import render_page, survey
from shardwright_planner.report.canvas import Scale, doublings, ticks
from shardwright_planner.report.markup import Markup, element

SVG = re.compile(r"<svg .*?</svg>", re.DOTALL)
NAMESPACE = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "br"}
LARGE = "meta-llama/Llama-3.1-405B-Instruct"


def question(name, nodes=1, *, gpus=8, level=None, load=None, pins=None, gpu="H100"):
    facts = find_model(name)
    assert facts is not None
    pool = Pool(gpu=find_gpu(gpu), gpus_per_node=gpus, nodes=nodes, name="pool")
    return PlanRequest(
        model=facts,
        pools=(pool,),
        workload=load or Workload(),
        service_level=level or ServiceLevel(),
        pins=pins or Pins(),
    )


SERVED = ServiceLevel(concurrency=32, time_per_output_token_s=0.150, time_to_first_token_s=30.0)
STRICT = ServiceLevel(time_per_output_token_s=0.001, policy=Policy.REQUIRE)
QUESTIONS = {
    "two nodes": question(LARGE, 2, level=SERVED, load=Workload(max_model_length=8192)),
    "does not fit": question(LARGE, 1, level=SERVED),
    "one GPU": question("meta-llama/Llama-3.1-8B", gpus=1),
    "refused": question("meta-llama/Llama-3.1-70B", level=STRICT),
    "experts on many nodes": question("deepseek-ai/DeepSeek-V3", 8, level=SERVED),
    "pinned to the least": question("meta-llama/Llama-3.1-8B", pins=Pins(tensor=1, pipeline=1)),
    "one request": question("meta-llama/Llama-3.1-8B", level=ServiceLevel(concurrency=1)),
}
SURVEYS = {name: survey(asked) for name, asked in QUESTIONS.items()}
PAGES = {name: render_page(found) for name, found in SURVEYS.items()}
each_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES.keys())


class Balance(HTMLParser):
    """Collects what is open; an end that closes something else is kept as a fault."""

    def __init__(self):
        super().__init__()
        self.open, self.faults = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


@each_page
def test_every_element_is_closed(page):
    parser = Balance()
    parser.feed(page)
    assert (parser.open, parser.faults) == ([], [])


@each_page
def test_nothing_is_loaded_from_elsewhere(page):
    assert re.findall(r"<script|<link|<img|<iframe|@import|url\(|\bsrc=|\bhref=", page) == []
    assert set(re.findall(r"https?://[^\"'\s]+", page)) <= {"http://www.w3.org/2000/svg"}


@each_page
def test_figures_have_titles_and_stay_within_their_bounds(page):
    figures = [Xml.fromstring(text) for text in SVG.findall(page)]  # noqa: S314  our own output
    assert figures
    for figure in figures:
        _, _, width, height = map(float, figure.attrib["viewBox"].split())
        ids = {part.attrib["id"]: part.text for part in figure if "id" in part.attrib}
        assert all(ids[name] for name in figure.attrib["aria-labelledby"].split())
        for part in figure.iter():
            for key, limit in (("x", width), ("y", height), ("cx", width), ("cy", height)):
                assert -0.5 <= float(part.attrib.get(key, 0)) <= limit + 0.5, (ids, part.attrib)
        for rect in figure.iter(f"{NAMESPACE}rect"):
            assert float(rect.attrib["x"]) + float(rect.attrib["width"]) <= width


@each_page
def test_no_number_is_odd(page):
    assert re.findall(r"\b(?:nan|inf|None)\b", SVG.sub(lambda m: m.group().replace("none", ""), page)) == []


@each_page
def test_identifiers_are_unique(page):
    found = re.findall(r' id="([^"]+)"', page)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_same_question_gives_the_same_bytes(name):
    assert render_page(survey(QUESTIONS[name])) == PAGES[name]


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        pytest.param("two nodes", {"memory", "step", "load-token", "load-first", "candidates"}, id="all"),
        pytest.param("does not fit", {"memory"}, id="nothing fits, hence no latency"),
        pytest.param("refused", {"memory", "step", "load-token", "load-first", "candidates"}, id="refused"),
    ],
)
def test_figures_of_a_page(name, figures):
    assert set(re.findall(r'id="([a-z-]+)-title"', PAGES[name])) == figures


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        pytest.param(
            "two nodes",
            [
                "Predicted to meet its service level",
                "Binding constraint: ",
                "four public memory logs",
                "goal 150 ms",
                "2x concurrency",
                "AllReduce",
            ],
            id="two nodes",
        ),
        pytest.param(
            "does not fit", ["Does not fit", "Nearest: TP8", "What would help", "missing"], id="does not fit"
        ),
        pytest.param("refused", ["Refused: misses a required", "Largest term: "], id="refused"),
        pytest.param("one GPU", ["Fits", "Not split"], id="one GPU"),
    ],
)
def test_the_page_says(name, texts):
    plain = re.sub(r"<[^>]+>", "", PAGES[name])
    assert [wanted for wanted in texts if wanted not in plain] == []


@pytest.mark.parametrize("name", QUESTIONS)
def test_rows_are_the_candidates_and_one_is_the_plan(name):
    found = SURVEYS[name]
    chosen = [row for row in found.rows if row.chosen]
    assert len(chosen) == 1
    assert chosen[0].gpus == found.plan.gpus_per_replica
    assert all(row.verdict for row in found.rows)
    assert all((row.token_ms is not None) == row.fits for row in found.rows)


def test_the_curve_passes_through_the_plan_and_rises():
    found = SURVEYS["two nodes"]
    asked = next(point for point in found.curve if point.concurrency == found.plan.goal.concurrency)
    predicted = found.plan.predicted.time_per_output_token_ms
    assert asked.token_ms == (predicted.low, predicted.high)
    highs = [point.token_ms[1] for point in found.curve]
    assert highs == sorted(highs)


def test_names_are_escaped_everywhere():
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
    }
    pool = Pool(gpu=find_gpu("H100"), gpus_per_node=2, nodes=1, name="<b>&")
    name = '</title><script>alert("x")</script>'
    asked = PlanRequest(model=model_from_config(config, name=name), pools=(pool,))
    page = render_page(survey(asked, notes=["<i>note</i>"]))
    assert "<script" not in page
    assert "<i>" not in page
    assert "<b>&" not in page


def test_elements_escape_text_and_keep_markup():
    inner = element("b", "1 < 2")
    assert element("p", "a & ", inner, class_="x", data_y=1.25, z=None) == (
        '<p class="x" data-y="1.2">a &amp; <b>1 &lt; 2</b></p>'
    )
    assert element("br") == "<br>"
    assert isinstance(inner, Markup)


@pytest.mark.parametrize(
    ("high", "want"),
    [
        pytest.param(87.0, [0, 20, 40, 60, 80, 100], id="tens"),
        pytest.param(1.0, [0, 0.2, 0.4, 0.6, 0.8, 1], id="one"),
        pytest.param(12.4, [0, 2.5, 5, 7.5, 10, 12.5], id="quarters"),
        pytest.param(0.0, [0, 1], id="nothing"),
        pytest.param(float("inf"), [0, 1], id="endless"),
    ],
)
def test_ticks_are_round_and_reach_the_highest(high, want):
    assert ticks(high) == want


@pytest.mark.parametrize(
    ("ends", "want"),
    [
        pytest.param((1, 1), [1, 2], id="one value still spans a step"),
        pytest.param((8, 64), [8, 16, 32, 64], id="powers"),
        pytest.param((3, 40), [2, 4, 8, 16, 32, 64], id="between powers"),
        pytest.param((1, 65536), [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536], id="thinned out"),
    ],
)
def test_doublings_span_the_values(ends, want):
    assert doublings(*ends) == want


def test_logarithmic_scale_doubles_in_equal_steps():
    scale = Scale(low=1, high=16, start=0, end=400, logarithmic=True)
    assert [scale(v) for v in (1, 2, 4, 8, 16)] == [0, 100, 200, 300, 400]
