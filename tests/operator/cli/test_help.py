"""Help: every command has one, with examples, within the width of the terminal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright_operator.cli.main import COMMANDS

Run = Callable[..., Any]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("columns", [80, 120])
def test_help_fits_the_terminal(
    command: str, columns: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    answer = run(command, "--help")

    assert answer.code == 0
    assert f"shardwright {command} [OPTIONS]" in answer.out
    assert "examples:\n" in answer.out
    assert [line for line in answer.out.splitlines() if len(line) > columns] == []


def test_overview_lists_the_commands(run: Run) -> None:
    answer = run("--help")

    assert answer.code == 0
    assert [name for name in COMMANDS if f"\n  {name} " not in answer.out] == []


def test_no_command_shows_the_overview_as_an_error(run: Run) -> None:
    answer = run()

    assert (answer.code, answer.out) == (2, "")
    assert answer.err == run("help").out


def test_version(run: Run) -> None:
    assert run("--version").out.startswith("shardwright 0.")


def test_plugin_of_kubectl_calls_itself_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/kubectl-shardwright"])

    assert "kubectl shardwright plan -f" in run("plan", "--help").out


def test_crd_is_the_committed_file(run: Run) -> None:
    file = Path(__file__).parents[3] / "crds" / "shardwright.dev_modeldeployments.yaml"

    assert run("crd").out == file.read_text(encoding="utf-8")
