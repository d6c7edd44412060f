"""``shardwright explain NAME``: the plan of a resource in the cluster, and what its engine says of it."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from shardwright_operator.api.constants import ConditionType
from shardwright_operator.api.plan_status import plan_of
from shardwright_operator.cli.comparison import comparison, report_line
from shardwright_operator.cli.console import (
    EXIT_OK,
    CommandParser,
    InputError,
    missing_extra,
    takes_color,
    width,
)
from shardwright_operator.cli.options import add_color, add_kubeconfig
from shardwright_operator.observe.conditions import condition_of
from shardwright_planner import Plan, explain


def parser(name: str) -> CommandParser:
    """The parser of ``shardwright explain``."""
    found = CommandParser(
        name,
        "Explain the plan of a ModelDeployment in the cluster, planned against measured: what its engine "
        "says of its KV cache, its start-up and its latency under load. The last line can be sent back to "
        "judge the planner by; it names the model and the GPUs, and nothing of your cluster. Reads one "
        "object, with your own rights.",
        ("llama-405b", "llama-405b -n serving", "llama-405b -o json | jq .measured"),
    )
    found.add_argument("name", metavar="NAME", help="name of the ModelDeployment")
    found.add_argument("-n", "--namespace", help="its namespace; default: that of the kubeconfig's context")
    add_kubeconfig(found)
    found.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="explanation, or plan and measurement",
    )
    add_color(found)
    found.add_argument("--all", action="store_true", help="list every candidate, not the nearest few")
    return found


def run(arguments: Sequence[str], parser: CommandParser) -> int:
    """Explain one resource."""
    options = parser.parse_args(arguments)
    body = _read(options.kubeconfig, options.namespace, options.name)
    status = body.get("status") or {}
    plan = _plan(options.name, status)
    measured = status.get("measured") or {}
    if options.output == "json":
        print(json.dumps({"plan": plan.to_wire(), "measured": measured}, indent=2))
        return EXIT_OK
    color = takes_color(options.color)
    sys.stdout.write(explained(plan, status, width=width(), color=color, whole=options.all))
    return EXIT_OK


def explained(plan: Plan, status: Mapping[str, Any], *, width: int, color: bool, whole: bool = False) -> str:
    """The whole text, from the status alone."""
    parts = [explain(plan, width=width, color=color, whole=whole).rstrip(), ""]
    measured = status.get("measured")
    parts.append("Planned against measured")
    if measured:
        parts += [_indented(comparison(plan, measured, width=width - 2)), ""]
        parts += [f"  {line}" for line in _verdict(status)]
        parts += ["", report_line(plan, measured)]
    else:
        parts += [
            "  Not measured yet. The operator asks a group that serves, once a minute, at its API port;",
            "  a narrow spec.network.clients must let it in.",
        ]
    return "\n".join(parts) + "\n"


def _verdict(status: Mapping[str, Any]) -> list[str]:
    found = condition_of(status, ConditionType.PLAN_VERIFIED)
    return [f"{ConditionType.PLAN_VERIFIED}={found['status']}: {found['message']}"] if found else []


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


def _plan(name: str, status: Mapping[str, Any]) -> Plan:
    wire = status.get("plan")
    if not wire:
        told = condition_of(status, ConditionType.PLAN_ACCEPTED) or condition_of(status, ConditionType.READY)
        why = str(told.get("message") or "the operator has not looked at it yet")
        # Some messages of conditions are sentences with their own full stop.
        message = f"{name} has no plan: {why.rstrip('.')}."
        raise InputError(message)
    try:
        return plan_of(wire)
    except ValueError:
        message = f"the plan of {name} was made by another version; use that version's command line."
        raise InputError(message) from None


def _read(kubeconfig: str | None, namespace: str | None, name: str) -> Mapping[str, Any]:
    try:
        # Only here: the other commands need no Kubernetes client, which takes its time to import.
        from shardwright_operator.cli.live import read_resource  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error, "operator") from None
    return read_resource(kubeconfig, namespace, name)
