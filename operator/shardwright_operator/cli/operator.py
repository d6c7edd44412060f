"""``shardwright operator``: the operator's process."""

import importlib
from collections.abc import Sequence

from shardwright_operator.cli.console import CommandParser, missing_extra
from shardwright_operator.settings import add_arguments


def parser(name: str) -> CommandParser:
    """The parser of ``shardwright operator``."""
    found = CommandParser(
        name,
        "Run the operator until a signal. It needs the CustomResourceDefinition in the cluster and the "
        "rights that the Helm chart grants. Each option can also be given as the environment variable in "
        "brackets.",
        (
            "",
            "--namespaces team-a,team-b --log-format text",
            "--kubeconfig ~/.kube/config --no-leader-election",
        ),
    )
    add_arguments(found)
    return found


def run(arguments: Sequence[str], parser: CommandParser) -> int:
    """Run it; the exit code is that of the process."""
    options = parser.parse_args(arguments)
    try:
        # Only here: the help needs neither kopf nor a Kubernetes client, and both take seconds to import.
        process = importlib.import_module("shardwright_operator.main")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("shardwright_operator"):
            raise
        raise missing_extra(error, "operator") from None
    code: int = process.run(vars(options))
    return code
