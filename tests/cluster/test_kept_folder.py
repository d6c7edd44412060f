"""What is made once per machine is made once, whole or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kept_folder import content_key, keep
from progress import Progress

QUIET = Progress("test")


def fill(folder: Path) -> None:
    (folder / "content").write_text(folder.name)


def test_a_folder_is_filled_aside_and_once(tmp_path: Path) -> None:
    folder = tmp_path / "kind" / "key"
    keep(folder, fill, QUIET)
    keep(folder, lambda _: pytest.fail("it is there"), QUIET)

    assert (folder / "content").read_text() == f"key.partial-{os.getpid()}"
    assert {path.name for path in folder.parent.iterdir()} == {"key", "build.lock"}


def test_an_incomplete_folder_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "key"
    (folder / "half").mkdir(parents=True)
    keep(folder, fill, QUIET, is_complete=(folder / "content").exists)

    assert [path.name for path in folder.iterdir()] == ["content"]


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        fill(folder)
        raise RuntimeError("no compiler")

    with pytest.raises(RuntimeError, match="no compiler"):
        keep(tmp_path / "key", fail, QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["build.lock"]


def test_remains_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    mine, others = tmp_path / f"old.partial-{os.getppid()}", tmp_path / f"old.partial-{ended.pid}"
    for folder in (mine, others):
        folder.mkdir()
    keep(tmp_path / "key", fill, QUIET)

    assert (mine.exists(), others.exists()) == (True, False)


def test_a_second_run_waits_for_the_first_and_takes_what_it_made(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = (
        "import sys, pathlib, kept_folder, progress\n"
        "def fill(folder):\n"
        "    print('filling', flush=True)\n"
        "    sys.stdin.readline()\n"
        "    (folder / 'content').write_text('first')\n"
        "kept_folder.keep(pathlib.Path(sys.argv[1]), fill, progress.Progress('first'))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    first = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "key")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert first.stdout is not None
    assert first.stdout.readline() == "filling\n"

    class Waits(Progress):
        def say(self, text: str) -> None:
            super().say(text)
            first.communicate("go on\n", timeout=30)

    keep(tmp_path / "key", lambda _: pytest.fail("it was made meanwhile"), Waits("second"))
    assert (tmp_path / "key" / "content").read_text() == "first"
    assert "second: 0:00  another process is at it" in capfd.readouterr().err


def test_the_key_is_that_of_contents(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("a pin")
    other.write_text("a pin")

    assert content_key(one, "go1.26") == content_key(other, "go1.26") != content_key(one, "go1.27")
    assert len(content_key(one, digits=12)) == 12
