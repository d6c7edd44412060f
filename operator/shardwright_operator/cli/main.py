"""Entry of the command line: picks the command and turns every refusal into one line and an exit code.

Only the chosen command's module is imported: ``plan`` is run in loops and in editors, and half a second of
imports of a Kubernetes client that it does not need would be most of its time.
"""

import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TextIO, cast

from shardwright_operator.cli.console import EXIT_BAD_INPUT, EXIT_OK, InputError, program, wrap

COMMANDS = {
    "plan": "Plan a model for a service level and say why; needs no cluster.",
    "explain": "Explain the plan of a resource in the cluster, planned against measured.",
    "render": "Print the manifests that the operator would apply.",
    "diff": "Show what a changed manifest would do to what runs.",
    "ledger": "Print where memory and communication go, over all sizes.",
    "crd": "Print the CustomResourceDefinition.",
    "operator": "Run the operator.",
}


_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What a write to a file says that can take no more."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 for success (a plan that may be deployed), 1 for a plan that does not fit or misses a required
        service level, 2 for bad input.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # closed by the caller (`>&-`), who wants the exit code alone
        sys.stdout = _nowhere()
    output = _Output(sys.stdout)
    try:
        with contextlib.redirect_stdout(cast("TextIO", output)):
            code = _run(arguments)
            output.flush()
    except ValueError as error:
        if not _is_refusal(error):
            raise
        print(f"{program()}: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        # Code 1 of a traceback would say that the plan does not fit, or that something changes.
        sys.stdout = _nowhere()
        print(f"{program()}: cannot write the answer: {error.strerror}.", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return 130
    finally:
        if output.is_unread:
            # Python would complain once more at its exit.
            sys.stdout = _nowhere()
    return code


class _Output:
    """Where the answer goes, until its reader has seen enough (``shardwright plan ... | head -1``).

    The answer is made to its end all the same: its exit code is the verdict, and a script with ``pipefail``
    took a plan that does not fit for one that does.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_unread = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if not self.is_unread:
            try:
                return self._stream.write(text)
            except BrokenPipeError:
                self.is_unread = True
        return len(text)

    def flush(self) -> None:
        if not self.is_unread:
            try:
                self._stream.flush()
            except BrokenPipeError:
                self.is_unread = True


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _run(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        print(_overview(), end="", file=sys.stdout if arguments else sys.stderr)
        return EXIT_OK if arguments else EXIT_BAD_INPUT
    if arguments[0] in {"-V", "--version", "version"}:
        print(_version())
        return EXIT_OK
    return _command(arguments[0], arguments[1:])


def _command(name: str, arguments: Sequence[str]) -> int:
    if name not in COMMANDS:
        close = get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the commands are {', '.join(COMMANDS)}."
        message = f"there is no command {name!r}; {hint}"
        raise InputError(message)
    command = importlib.import_module(f"shardwright_operator.cli.{name}")
    code: int = command.run(arguments, command.parser(f"{program()} {name}"))
    return code


def _is_refusal(error: ValueError) -> bool:
    # Told apart by name, so that the error types of the planner and the API need not be imported for `crd`.
    return type(error).__name__ in {"InputError", "SpecError", "PlanInputError"}


def _overview() -> str:
    lines = [
        "Shardwright plans multi-node vLLM: which parallelism a model needs on your GPUs, and why.",
        "",
        f"Usage: {program()} COMMAND [OPTIONS]",
        "",
        "Commands:",
    ]
    lines += [f"  {name:<10}{text}" for name, text in COMMANDS.items()]
    lines += [
        "",
        "Examples:",
        f"  {program()} plan -f examples/llama-3.1-405b.yaml",
        f"  {program()} plan --model Qwen/Qwen3-32B --gpu H100-SXM-80GB --gpus-per-node 8 --nodes 1",
        "",
        f"`{program()} COMMAND --help` shows the options of a command.",
        "Exit codes: 0 the plan fits, 1 it does not fit or misses a required service level, 2 bad input.",
        "diff has exit codes of its own.",
    ]
    return wrap(lines)


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415  the import takes longer than most commands need

    return f"shardwright {version('shardwright')}"
