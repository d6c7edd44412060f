"""``shardwright crd``: the CustomResourceDefinition, generated from the models of this version."""

import json
from collections.abc import Sequence

from shardwright_operator.api.crd import crd, crd_yaml
from shardwright_operator.cli.console import CommandParser


def parser(name: str) -> CommandParser:
    """The parser of ``shardwright crd``."""
    found = CommandParser(
        name,
        "Print the CustomResourceDefinition of ModelDeployment. It is the file that stands in crds/.",
        ("| kubectl apply --server-side -f -", "-o json"),
    )
    found.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="format (yaml)")
    return found


def run(arguments: Sequence[str], parser: CommandParser) -> int:
    """Print it."""
    options = parser.parse_args(arguments)
    print(json.dumps(crd(), indent=2) if options.output == "json" else crd_yaml().rstrip("\n"))
    return 0
