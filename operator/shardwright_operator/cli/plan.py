"""``shardwright plan``: the plan of a model and its reasons, as the operator would make it."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from shardwright_operator.cli.console import (
    EXIT_DOES_NOT_FIT,
    EXIT_OK,
    CommandParser,
    InputError,
    takes_color,
    width,
)
from shardwright_operator.cli.documents import to_yaml
from shardwright_operator.cli.options import add_color, add_options
from shardwright_operator.cli.question import Question, questions
from shardwright_planner import Plan, explain
from shardwright_planner.sensitivity import sensitivity


def parser(name: str) -> CommandParser:
    """The parser of ``shardwright plan``."""
    found = CommandParser(
        name,
        "Plan a model for a service level and say why. The question is a ModelDeployment manifest, or "
        "options, or a manifest with options on top (what if there were four nodes?). Exit code 1 says that "
        "the plan does not fit, or misses a service level that slo.policy requires.",
        (
            "-f examples/llama-3.1-405b.yaml",
            "-f examples/llama-3.1-405b.yaml --nodes 4 --tpot 60ms",
            "--model Qwen/Qwen3-32B --gpu H100-SXM-80GB --gpus-per-node 8 --nodes 1 --tpot 30ms",
            "-f examples/llama-3.1-405b.yaml --report plan.html",
            "--config ./my-model/config.json --gpu L40S --gpus-per-node 4 --nodes 2 -o yaml",
            "--model-dir ./my-model --gpu L40S --gpus-per-node 4 --nodes 2",
            "--model OWNER/NAME --hub --gpu L40S --gpus-per-node 4 --nodes 2",
        ),
    )
    add_options(found)
    output = found.add_argument_group("output")
    output.add_argument(
        "-o",
        "--output",
        choices=("text", "json", "yaml"),
        default="text",
        help="an explanation (text), or the plan as a record; status.plan has its alternatives as lines",
    )
    add_color(output)
    output.add_argument(
        "--report",
        metavar="FILE",
        help="also write an HTML page with figures; it needs nothing but a browser",
    )
    output.add_argument("--all", action="store_true", help="list every candidate, not the nearest few")
    return found


def run(arguments: Sequence[str], parser: CommandParser) -> int:
    """Plan and print; several resources one after the other."""
    options = parser.parse_args(arguments)
    asked = questions(options)
    # All are planned before anything is printed: half an answer followed by an error helps no script.
    plans = [question.answer() for question in asked]
    if options.report is not None:
        _write_report(asked, options.report)
    if options.output == "json":
        # One document, as of diff and render: two objects one after the other are no JSON.
        records = [plan.to_wire() for plan in plans]
        print(json.dumps(records[0] if len(records) == 1 else records, indent=2))
        return _code(plans)
    for place, (question, plan) in enumerate(zip(asked, plans, strict=True)):
        if options.output == "yaml":
            print("---\n" if place else "", to_yaml(plan.to_wire()), sep="", end="")
        else:
            heading = f"\n{question.deployment.name}\n\n" if len(asked) > 1 else ""
            text = explain(
                plan,
                width=width(),
                color=takes_color(options.color),
                whole=options.all,
                variants=sensitivity(question.request()),
                notes=question.notes(),
            )
            sys.stdout.write(f"{heading}{text.rstrip()}\n")
    return _code(plans)


def _code(plans: Sequence[Plan]) -> int:
    return EXIT_OK if all(plan.feasible for plan in plans) else EXIT_DOES_NOT_FIT


def _write_report(asked: Sequence[Question], path: str) -> None:
    if len(asked) != 1:
        message = f"--report takes one resource, and {len(asked)} are given; write a file for each."
        raise InputError(message)
    # Only here: most plans are read in a terminal.
    from shardwright_planner.report import render_page, survey  # noqa: PLC0415

    page = render_page(survey(asked[0].request(), notes=asked[0].notes()))
    try:
        Path(path).write_text(page, encoding="utf-8")
    except OSError as error:
        message = f"cannot write {path}: {error.strerror or error}."
        raise InputError(message) from None
