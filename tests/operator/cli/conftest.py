"""Runs the command line in this process and hands back what a shell would see."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from shardwright_operator.cli import main


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Exit code and output of one run."""

    code: int
    out: str
    err: str


Run = Callable[..., Answer]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run("plan", "--model", ...)`` as a user would type it, on a terminal of 100 columns."""
    monkeypatch.setattr("sys.argv", ["shardwright"])
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: str) -> Answer:
        try:
            code = main(list(arguments))
        except SystemExit as end:  # argparse leaves this way after --help
            code = int(end.code or 0)
        caught = capsys.readouterr()
        return Answer(code=code, out=caught.out, err=caught.err)

    return call
