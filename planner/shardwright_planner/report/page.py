"""The page: figures and tables in order, each with plain words beside it.

The file holds no script, no link and no date: it can be mailed, printed and kept beside a change in Git, and
the same question gives the same bytes.
"""

from collections.abc import Iterator, Sequence
from importlib.resources import files

from shardwright_planner.binding import binding_text, missed_text
from shardwright_planner.plan import Plan
from shardwright_planner.report.candidates_figure import candidates_figure
from shardwright_planner.report.load_figure import load_figures
from shardwright_planner.report.markup import Markup, element, joined
from shardwright_planner.report.memory_figure import memory_figure
from shardwright_planner.report.step_figure import step_figure
from shardwright_planner.report.survey import Survey
from shardwright_planner.report.tables import (
    candidates_table,
    communication_table,
    memory_table,
    replicas_text,
    variants_table,
)
from shardwright_planner.wording import (
    MORE_REPLICAS,
    RULES,
    cache_text,
    cause_text,
    context_tokens,
    cost_text,
    count_text,
    fits,
    gib_text,
    held_text,
    range_text,
    sizes_text,
    time_text,
    where_text,
)

PIPELINE_NOTE = (
    "Figures with more than one pipeline stage are derived and not measured: four public memory logs have "
    "more than one stage, none of them over nodes."
)
RANGE_NOTE = (
    "Latencies are ranges of means at steady load; the high end is held against the service level. For "
    "models that were not fitted, time per output token is good to about 5 % and time to first token to "
    "about 20 % in the median."
)


def render_page(found: Survey) -> str:
    """The whole report as one HTML document."""
    plan = found.plan
    body = element(
        "main",
        _header(plan),
        _section("Why this plan", _why(plan)),
        _section("Memory on each GPU", _memory(plan)),
        *_latency(found),
        _section("Every candidate", _candidates(found)),
        _section("What if", _variants(found)),
        *_warnings(found),
        _footer(plan),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{plan.model}: {sizes_text(plan)}"),
        element("style", Markup(_style())),
    )
    return f"<!doctype html>\n{element('html', head, element('body', body), lang='en')}\n"


def _style() -> str:
    return files("shardwright_planner.report").joinpath("style.css").read_text(encoding="utf-8")


def _header(plan: Plan) -> Markup:
    verdict, look = _verdict(plan)
    sizes = f"{sizes_text(plan)} on {where_text(plan)}"
    parts = [
        element("h1", plan.model),
        element("p", sizes if plan.feasible else f"Nearest: {sizes}", class_="sizes"),
        element("span", verdict, class_=f"badge {look}"),
        element("p", f"{plan.reason}.", class_="lead"),
    ]
    replicas = replicas_text(plan)
    if replicas and plan.feasible:
        parts.append(element("p", f"{replicas}.", class_="lead"))
    if plan.cost_per_hour is not None:
        parts.append(element("p", f"Cost: {cost_text(plan)}.", class_="lead"))
    tiles = (
        element("div", element("b", value), element("span", label), class_="tile")
        for value, label in _tiles(plan)
    )
    return element("header", *parts, element("div", *tiles, class_="tiles"))


def _verdict(plan: Plan) -> tuple[str, str]:
    if not fits(plan):
        return "Does not fit", "stop"
    if not plan.feasible:
        return "Refused: misses a required service level", "stop"
    if plan.slo_predicted is False:
        return "Fits, but is predicted to miss its service level", "bad"
    return ("Fits", "good") if plan.slo_predicted is None else ("Predicted to meet its service level", "good")


def _tiles(plan: Plan) -> Iterator[tuple[str, str]]:
    yield count_text(plan.gpus_per_replica, "GPU"), f"{plan.gpu} of one replica"
    heaviest = max((stage.weights_bytes for stage in plan.stages), default=0)
    yield f"{gib_text(heaviest)} GiB", "weights on the fullest GPU"
    yield f"{plan.kv_cache_tokens:,}", "tokens in the KV cache"
    predicted = plan.predicted
    if predicted is None:
        yield f"{gib_text(max((s.missing_bytes for s in plan.stages), default=0))} GiB", "missing on a GPU"
        return
    yield range_text(predicted.time_per_output_token_ms), "per output token"
    yield range_text(predicted.time_to_first_token_ms), "to first token"
    yield f"{predicted.tokens_per_second:,.0f}", "tokens per second of one replica"


def _why(plan: Plan) -> Iterator[Markup]:
    yield element("p", cause_text(plan), *([" ", MORE_REPLICAS] if fits(plan) else []))
    yield element("p", f"Rule: {RULES.get(plan.rule, plan.rule)}.")
    yield element("p", element("b", "Binding constraint: "), f"{binding_text(plan)}.")
    if plan.slo_predicted is not None:
        yield element("p", element("b", "Service level: "), f"{plan.slo_message}.")
    if plan.slo_predicted is False and plan.step_time is not None:
        yield element("p", element("b", "Largest term: "), f"{missed_text(plan)}.")
    if plan.remedies:
        yield element("h3", "What would help")
        yield _list(plan.remedies)


def _memory(plan: Plan) -> Iterator[Markup]:
    if not fits(plan):
        allowed = gib_text(plan.gpu_memory_bytes * plan.gpu_memory_utilization)
        yield element(
            "p",
            f"vLLM {plan.engine_version} may use {allowed} GiB of each GPU (dashed line). What lies beyond "
            "it is missing for the weights, the working memory and the wanted cache together.",
        )
        yield _figure(memory_figure(plan))
        yield memory_table(plan)
        return
    held = f"{plan.kv_cache_tokens:,} tokens in the KV cache ({cache_text(plan)})"
    yield element(
        "p",
        f"vLLM {plan.engine_version} may use {100 * plan.gpu_memory_utilization:.0f} % of each GPU (dashed "
        f"line). What the weights leave becomes cache: {held}, enough for {held_text(plan.slo_concurrency)} "
        f"requests of {context_tokens(plan):,} tokens at once, or {plan.max_concurrency:,.1f} of the longest "
        f"({plan.max_model_length:,} tokens); {plan.goal.concurrency:,} are wanted. The fullest stage "
        "decides for all.",
    )
    yield _figure(memory_figure(plan))
    yield memory_table(plan)
    yield element("p", "GiB on each GPU of the stage. The margin is kept unplanned.", class_="soft")


def _latency(found: Survey) -> Iterator[Markup]:
    plan = found.plan
    if plan.step_time is None or plan.predicted is None:
        return
    yield _section("Where the time of a token goes", _step(plan))
    figures = load_figures(plan, found.curve)
    if figures:
        notes = [RANGE_NOTE, *([PIPELINE_NOTE] if plan.pipeline_parallel > 1 else [])]
        yield _section(
            "Latency against load",
            [
                element(
                    "p",
                    "The same sizes at other concurrencies, as far as their cache reaches. The band runs "
                    "from the low to the high end.",
                ),
                element("div", *figures, class_="pair"),
                element("p", " ".join(notes), class_="soft"),
            ],
        )


def _step(plan: Plan) -> Iterator[Markup]:
    step = plan.step_time
    assert step is not None  # noqa: S101  only asked for with one
    load = f"{plan.goal.concurrency:,} requests of {context_tokens(plan):,} tokens"
    yield element(
        "p",
        f"At {load} one output token takes {step.total_ms:.1f} ms; the largest term is {step.binding}. "
        "Reading memory and arithmetic overlap, so that only the longer of the two counts.",
    )
    yield _figure(step_figure(step))
    moves = communication_table(plan)
    if moves:
        yield element("h3", "What a decode step moves between GPUs")
        yield moves


def _candidates(found: Survey) -> Iterator[Markup]:
    plan, rows = found.plan, found.rows
    illegal = sum(not row.legal for row in rows)
    goal = plan.goal.time_per_output_token_ms
    against = f" The dashed line is the goal of {time_text(goal)}." if goal is not None else ""
    refused = (
        f" {count_text(illegal, 'layout')} that the engine refuses stand in the table only."
        if illegal
        else ""
    )
    figure = candidates_figure(plan, rows)
    if figure:
        less = "costs less" if all(row.cost_per_hour is not None for row in rows) else "needs fewer GPUs"
        text = f"Each dot is a layout that was judged: further left it {less}, further down it is faster."
        yield element("p", f"{text}{against}{refused}")
        yield _figure(figure)
    else:
        yield element("p", f"Nothing fits, so that no candidate has a latency.{refused}")
    yield candidates_table(rows)


def _variants(found: Survey) -> Iterator[Markup]:
    yield element("p", "Each line is planned anew from the changed question, sizes included.")
    yield variants_table(found.plan, found.variants)


def _warnings(found: Survey) -> Iterator[Markup]:
    notes = (*found.plan.warnings, *found.notes)
    if notes:
        yield _section("To be aware of", [_list(notes)])


def _footer(plan: Plan) -> Markup:
    return element(
        "footer",
        f"Planner {plan.planner_version}, vLLM {plan.engine_version}, inputs {plan.input_hash}. "
        f"Request: {plan.goal.input_tokens:,} + {plan.goal.output_tokens:,} tokens, "
        f"{plan.goal.concurrency:,} at once, policy {plan.goal.policy}.",
    )


def _section(title: str, parts: Sequence[Markup] | Iterator[Markup]) -> Markup:
    return element("section", element("h2", title), joined(parts))


def _figure(drawing: Markup) -> Markup:
    return element("div", drawing, class_="figure")


def _list(texts: Sequence[str]) -> Markup:
    return element("ul", *(element("li", text) for text in texts))
