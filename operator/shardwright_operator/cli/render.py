"""``shardwright render``: the manifests that the operator would apply to an empty cluster.

They come out of the operator's own decision about a resource that it sees for the first time, so that what is
shown here cannot differ from what is done there.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from shardwright_operator.api.constants import ConditionType
from shardwright_operator.cli.console import EXIT_DOES_NOT_FIT, EXIT_OK, CommandParser, InputError
from shardwright_operator.cli.documents import to_yaml
from shardwright_operator.cli.first_pass import UID, applied, first_pass, new_resource
from shardwright_operator.cli.options import add_options
from shardwright_operator.cli.question import Question, questions
from shardwright_operator.decide import DecideSettings
from shardwright_operator.observe.conditions import condition_of
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.views import Key
from shardwright_operator.settings import installed_version


def parser(name: str) -> CommandParser:
    """The parser of ``shardwright render``."""
    found = CommandParser(
        name,
        "Print the manifests that the operator would apply for a ModelDeployment: the revision, the Service "
        "for clients, and for each group its Service of ranks, NetworkPolicy, PodDisruptionBudget and "
        "StatefulSets. The hardware must be in the manifest or in options, since there is no cluster.",
        (
            "-f examples/llama-3.1-405b.yaml",
            "-f examples/llama-3.1-405b.yaml --nodes 4 | grep -A 30 'command:'",
            "-f my.yaml --tensor 4 -o json",
        ),
    )
    add_options(found)
    found.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="format (yaml)")
    return found


def run(arguments: Sequence[str], parser: CommandParser) -> int:
    """Print the manifests; nothing for a plan that would not be deployed, whose reason goes to stderr."""
    options = parser.parse_args(arguments)
    if options.filename is None:
        parser.error("a manifest must be given with -f")
    found: list[dict[str, Any]] = []
    code = EXIT_OK
    for question in (found.unmeasured() for found in questions(options)):
        plan = question.answer()
        if plan.feasible:
            found += manifests(question)
        else:
            print(f"{question.deployment.name}: {plan.reason}", file=sys.stderr)
            code = EXIT_DOES_NOT_FIT
    if options.output == "json":
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}, indent=2))
    else:
        head = f"# The uid {UID} in ownerReferences stands for that of the ModelDeployment.\n"
        print("---\n".join([head * bool(found), *map(to_yaml, found)]), end="")
    return code


def manifests(question: Question) -> list[dict[str, Any]]:
    """What the operator would apply for a resource that it sees for the first time, in its order.

    Raises:
        InputError: for a spec that is planned but cannot be rendered.
    """
    deployment = question.deployment
    key = Key(namespace=deployment.namespace, name=deployment.name)
    observed = Observed(key=key, resource=new_resource(key, deployment.raw_spec))
    decision = first_pass(observed, DecideSettings(operator_version=installed_version()))
    writes = applied(decision)
    if not writes:
        raise InputError(f"{question.origin.file}: {deployment.name}: {_refusal(decision.status)}")
    # Through JSON, as on the way to the API server: YAML refuses enumerations, which JSON writes as texts.
    return [json.loads(json.dumps(write.manifest)) for write in writes]


def _refusal(status: Mapping[str, Any] | None) -> str:
    return str(condition_of(status or {}, ConditionType.PLAN_ACCEPTED).get("message") or "refused")
