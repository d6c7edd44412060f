"""``shardwright explain NAME``: the plan of a resource in the cluster, and what its engine says of it."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shardwright_operator.api.constants import KIND, ConditionType
from shardwright_operator.cli.comparison import comparison, report_line
from shardwright_operator.cli.console import EXIT_OK, CommandParser, InputError, takes_color, width
from shardwright_planner import Plan, explain

ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "default"


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
    found.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig file; default: KUBECONFIG, as kubectl"
    )
    found.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="explanation, or plan and measurement",
    )
    found.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colour in the explanation (auto)",
    )
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
    conditions = status.get("conditions") or ()
    found = next((c for c in conditions if c.get("type") == ConditionType.PLAN_VERIFIED), None)
    return [] if found is None else [f"{ConditionType.PLAN_VERIFIED}={found['status']}: {found['message']}"]


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


def _plan(name: str, status: Mapping[str, Any]) -> Plan:
    wire = status.get("plan")
    if not wire:
        conditions = {c.get("type"): c for c in status.get("conditions") or ()}
        why = conditions.get(ConditionType.PLAN_ACCEPTED, conditions.get(ConditionType.READY, {})).get(
            "message"
        )
        message = f"{name} has no plan: {why or 'the operator has not looked at it yet'}."
        raise InputError(message)
    try:
        return Plan.model_validate(wire, extra="ignore")
    except ValidationError:
        message = f"the plan of {name} was made by another version; use that version's command line."
        raise InputError(message) from None


def _read(kubeconfig: str | None, namespace: str | None, name: str) -> Mapping[str, Any]:
    try:
        # Only here: the other commands need no Kubernetes client, which takes its time to import.
        from shardwright_operator.cluster.connection import NoClusterError  # noqa: PLC0415
        from shardwright_operator.cluster.errors import ClusterError, NotFoundError  # noqa: PLC0415
    except ModuleNotFoundError as error:
        message = f"{error.name} is not installed; install shardwright with its extra: shardwright[operator]."
        raise InputError(message) from None
    try:
        return asyncio.run(_fetch(kubeconfig, namespace, name))
    except NoClusterError as error:
        raise InputError(str(error)) from None
    except NotFoundError:
        message = f"there is no {KIND} {name!r} in this namespace; give another one with -n."
        raise InputError(message) from None
    except ClusterError as error:
        raise InputError(error.for_people) from None


async def _fetch(kubeconfig: str | None, namespace: str | None, name: str) -> Mapping[str, Any]:
    from shardwright_operator.cluster.api import ApiCluster  # noqa: PLC0415  see above
    from shardwright_operator.cluster.connection import connect  # noqa: PLC0415

    connection = await connect(kubeconfig)
    cluster = ApiCluster(connection, user_agent="shardwright-explain")
    try:
        return await cluster.get(KIND, namespace or _context_namespace(connection), name)
    finally:
        await cluster.close()


def _context_namespace(connection: Any) -> str:
    """The namespace that kubectl would take."""
    if connection.loader is not None:
        context = connection.loader.current_context.get("context") or {}
        return str(context.get("namespace") or DEFAULT_NAMESPACE)
    try:
        return ACCOUNT_NAMESPACE.read_text().strip()
    except OSError:
        return DEFAULT_NAMESPACE
