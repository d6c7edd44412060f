"""The terminal: how wide it is, whether it takes colour, and parsers that answer in one line."""

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

EXIT_OK = 0
EXIT_DOES_NOT_FIT = 1
EXIT_BAD_INPUT = 2

MIN_WIDTH = 60
MAX_WIDTH = 120


class InputError(ValueError):
    """Something that the user gave cannot be used; the message is the one line that is printed."""


def missing_extra(error: ModuleNotFoundError, extra: str, *, otherwise: str = "") -> InputError:
    """The refusal of a command that needs an extra which is not installed; ``otherwise`` is another way."""
    way_out = f"install shardwright with its extra: shardwright[{extra}]"
    return InputError(f"{error.name} is not installed; {way_out}{otherwise and f', or {otherwise}'}.")


def program() -> str:
    """How the user calls us: as a plugin of kubectl, or directly."""
    return "kubectl shardwright" if Path(sys.argv[0]).name.startswith("kubectl-") else "shardwright"


def width() -> int:
    """Columns for texts: those of the terminal, within what reads well."""
    return max(MIN_WIDTH, min(MAX_WIDTH, shutil.get_terminal_size((100, 24)).columns))


def takes_color(choice: str) -> bool:
    """Whether to colour: ``always``, ``never``, or ``auto`` for a terminal whose user did not object."""
    if choice != "auto":
        return choice == "always"
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def wrap(lines: Iterable[str]) -> str:
    """Lines folded to the terminal; an indented line that is folded goes on two columns further in."""
    folded: list[str] = []
    for line in lines:
        own = len(line) - len(line.lstrip())
        indent = " " * (own + 2 if own else 0)
        folded += textwrap.wrap(
            line, width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(folded) + "\n"


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the examples as they were written and gives options a column that their names fit in."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=width())


def _folded_command(command: str) -> str:
    # Ends of lines that a shell takes as one command, so that an example can be copied whole.
    lines = textwrap.wrap(
        command,
        width() - 2,
        initial_indent="  ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return " \\\n".join(lines)


class CommandParser(argparse.ArgumentParser):
    """A parser with examples in its help; it answers bad input with one line instead of its whole usage."""

    def __init__(self, prog: str, description: str, examples: Iterable[str]) -> None:
        shown = "\n".join(_folded_command(f"{prog} {example}".strip()) for example in examples)
        super().__init__(
            prog=prog,
            usage=f"{prog} [OPTIONS]",
            description=wrap([description]).rstrip(),
            epilog=f"examples:\n{shown}",
            formatter_class=_Formatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments.

        Raises:
            InputError: always.
        """
        text = f"{message}; see {self.prog} --help."
        raise InputError(text)
