"""Where the answer goes: a full disk, a closed output or a reader that leaves is no crash and no verdict."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = str(Path(__file__).parents[3] / "examples" / "llama-3.1-405b.yaml")
COMMANDS = [
    pytest.param(("plan", "-f", EXAMPLE), id="plan"),
    pytest.param(("diff", "-f", EXAMPLE, "--against", EXAMPLE), id="diff"),
    pytest.param(("ledger", "-f", EXAMPLE), id="ledger"),
    pytest.param(("crd",), id="crd"),
    pytest.param(("--version",), id="version"),
    pytest.param(("--help",), id="help"),
]

UNBUFFERED = [pytest.param("", id="buffered"), pytest.param("1", id="unbuffered")]
"""A short answer in Python's buffer meets the error at the end of the process only."""


def _run(arguments: tuple[str, ...], redirection: str, unbuffered: str) -> tuple[int, str]:
    command = f'"$0" -m shardwright_operator.cli "$@" {redirection}'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, *arguments],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("unbuffered", UNBUFFERED)
@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_full_disk_is_said_in_one_line_and_is_no_verdict(
    arguments: tuple[str, ...], unbuffered: str
) -> None:
    code, errors = _run(arguments, ">/dev/full", unbuffered)

    assert (code, errors) == (2, "shardwright: cannot write the answer: No space left on device.\n")


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_closed_output_leaves_the_exit_code(arguments: tuple[str, ...]) -> None:
    assert _run(arguments, ">&-", "") == (0, "")


@pytest.mark.parametrize("unbuffered", UNBUFFERED)
@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_reader_that_leaves_is_no_error(arguments: tuple[str, ...], unbuffered: str) -> None:
    assert _run(arguments, "| true; exit ${PIPESTATUS[0]}", unbuffered) == (0, "")


@pytest.mark.parametrize("unbuffered", UNBUFFERED)
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(("plan", "-f", EXAMPLE, "--nodes", "1"), 1, id="a plan that does not fit"),
        pytest.param(("plan", "-f", EXAMPLE, "--nodes", "1", "--all"), 1, id="a long one"),
        pytest.param(
            ("diff", "-f", EXAMPLE, "--max-model-len", "16384", "--against", EXAMPLE), 1, id="a change"
        ),
        pytest.param(("plan", "-f", EXAMPLE, "--model", "nobody/knows"), 2, id="bad input"),
    ],
)
def test_a_reader_that_leaves_changes_no_verdict(
    arguments: tuple[str, ...], code: int, unbuffered: str
) -> None:
    # `set -o pipefail; shardwright plan ... | head -1` took a plan that does not fit for one that does.
    found, errors = _run(arguments, "| true; exit ${PIPESTATUS[0]}", unbuffered)
    assert found == code
    assert errors.count("\n") == (1 if code == 2 else 0)
