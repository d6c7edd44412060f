"""``shardwright plan``: the plan of a model and its reasons, as the operator would make it."""

import json
import sys
from collections.abc import Sequence

from shardwright_operator.cli.console import EXIT_DOES_NOT_FIT, EXIT_OK, CommandParser, takes_color, width
from shardwright_operator.cli.documents import to_yaml
from shardwright_operator.cli.options import add_options
from shardwright_operator.cli.question import questions
from shardwright_planner import explain
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
            "--config ./my-model/config.json --gpu L40S --gpus-per-node 4 --nodes 2 -o yaml",
        ),
    )
    add_options(found)
    output = found.add_argument_group("output")
    output.add_argument(
        "-o",
        "--output",
        choices=("text", "json", "yaml"),
        default="text",
        help="an explanation (text), or the plan as it stands in status.plan",
    )
    output.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colour in the explanation (auto)",
    )
    output.add_argument("--all", action="store_true", help="list every candidate, not the nearest few")
    return found


def run(arguments: Sequence[str], parser: CommandParser) -> int:
    """Plan and print; several resources one after the other."""
    options = parser.parse_args(arguments)
    asked = questions(options)
    # All are planned before anything is printed: half an answer followed by an error helps no script.
    plans = [question.answer() for question in asked]
    for place, (question, plan) in enumerate(zip(asked, plans, strict=True)):
        if options.output == "json":
            print(json.dumps(plan.to_wire(), indent=2))
        elif options.output == "yaml":
            print("---\n" if place else "", to_yaml(plan.to_wire()), sep="", end="")
        else:
            heading = f"\n{question.deployment.name}\n\n" if len(asked) > 1 else ""
            text = explain(
                plan,
                width=width(),
                color=takes_color(options.color),
                whole=options.all,
                variants=sensitivity(question.request()),
            )
            sys.stdout.write(f"{heading}{text.rstrip()}\n")
    return EXIT_OK if all(plan.feasible for plan in plans) else EXIT_DOES_NOT_FIT
