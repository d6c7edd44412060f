"""Real launchers as real processes, laid out on disk as a pod's ConfigMap lays them out."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import shardwright_operator
from shardwright_operator import launcher

PATIENCE_S = 20.0


@dataclass
class Running:
    """A launcher under way."""

    process: subprocess.Popen[str]
    words: Path
    log: Path
    began: float = field(default_factory=time.monotonic)

    def end(self) -> tuple[int, str]:
        """Exit code and termination message, once it has ended."""
        code = self.process.wait(PATIENCE_S)
        return code, self.words.read_text() if self.words.exists() else ""

    def logged(self) -> str:
        return self.log.read_text()

    def await_log(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.logged():
            assert time.monotonic() < deadline, f"{text!r} is not in: {self.logged()}"
            time.sleep(0.02)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)


Launch = Callable[..., Running]


@pytest.fixture(scope="session")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The launcher's files as they lie in a pod, away from the rest of the operator."""
    root = tmp_path_factory.mktemp("opt")
    package = root / "shardwright_operator"
    (package / "launcher").mkdir(parents=True)
    (package / "__init__.py").write_text(Path(shardwright_operator.__file__).read_text())
    for source in Path(launcher.__file__).parent.glob("*.py"):
        target = root if source.name == "launcher.py" else package / "launcher"
        (target / source.name).write_text(source.read_text())
    return root


@pytest.fixture
def launch(mounted: Path, tmp_path: Path) -> Iterator[Launch]:
    """Start a launcher with options and a Python program as its engine."""
    started: list[Running] = []

    def start(*options: str, engine: str | list[str], **environment: str) -> Running:
        place = tmp_path / str(len(started))
        place.mkdir()
        command = [sys.executable, "-c", engine] if isinstance(engine, str) else engine
        log = place / "log"
        with log.open("w") as out:
            process = subprocess.Popen(
                [
                    sys.executable,
                    str(mounted / "launcher.py"),
                    *("--termination-log", str(place / "words")),
                    *options,
                    "--",
                    *command,
                ],
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                env={"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1", **environment},
            )
        started.append(Running(process=process, words=place / "words", log=log))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
