"""The data file, and how it is made: one process of the engine's Python that prints JSON."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine_environment import Environment

DERIVATION = Path(__file__).resolve().parent / "derivation.py"
DATA = Path(__file__).resolve().parents[3] / "planner" / "shardwright_planner" / "engine_facts.json"
ABOUT = (
    "Facts of vLLM by minor version, derived from the installed engine by `make engine-facts`; not edited by "
    "hand. A later version is taken to behave like the last one that was derived."
)
TIMEOUT_S = 400


def derived(engine: Environment) -> tuple[str, dict[str, Any]]:
    """The version as major.minor, and its facts.

    Raises:
        RuntimeError: vLLM could not be read; the message ends with its last lines.
    """
    done = subprocess.run(
        [engine.python, DERIVATION],
        capture_output=True,
        text=True,
        env=engine.variables(),
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError("vLLM cannot be read:\n" + "\n".join(done.stderr.splitlines()[-15:]))
    found = json.loads(done.stdout.splitlines()[-1])
    return found.pop("version"), found


def written(facts: Mapping[str, Mapping[str, Any]]) -> str:
    """The file's text: one line per entry of a version, so that a new version is a readable diff."""
    versions = []
    for version, entries in sorted(facts.items(), key=lambda item: tuple(map(int, item[0].split(".")))):
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(entries[key])}" for key in sorted(entries))
        versions.append(f"{json.dumps(version)}: {{\n{lines}\n}}")
    return f'{{\n"about": {json.dumps(ABOUT)},\n"versions": {{\n' + ",\n".join(versions) + "\n}\n}\n"


def kept() -> dict[str, dict[str, Any]]:
    """What the file holds now; nothing without a file."""
    if not DATA.exists():
        return {}
    found: dict[str, dict[str, Any]] = json.loads(DATA.read_text())["versions"]
    return found
