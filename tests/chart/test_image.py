"""The Dockerfile by its text, since no image can be built where the tests run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = (line.strip() for line in text.splitlines())
    return [tuple(line.split(maxsplit=1)) for line in lines if line and not line.startswith("#")]  # type: ignore[misc]


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for name, rest in instructions():
        if name == "FROM":
            found.append([])
        if found:
            found[-1].append((name, rest))
    return found


def test_instructions_are_known_ones() -> None:
    known = {"ARG", "FROM", "ENV", "WORKDIR", "COPY", "RUN", "LABEL", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in instructions()} <= known


def test_no_host_is_named() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert not re.search(r"https?://|[a-z0-9-]+\.(io|com|org|dev)/", text)


def test_last_stage_runs_nothing_and_is_no_root() -> None:
    last = stages()[-1]
    names = [name for name, _ in last]
    assert "RUN" not in names
    assert ("USER", "65532:65532") in last
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert ("ENTRYPOINT", '["shardwright"]') in last
    assert ("CMD", '["operator"]') in last


def test_all_that_is_fetched_is_pinned_by_hash() -> None:
    runs = [rest for stage in stages() for name, rest in stage if name == "RUN"]
    for command in (part.strip() for run in runs for part in run.split("&&")):
        if command.startswith("pip "):
            assert "--require-hashes" in command or "--no-index" in command, command
    environment = " ".join(rest for stage in stages() for name, rest in stage if name == "ENV")
    assert "PIP_NO_CACHE_DIR=1" in environment


def test_every_copied_path_exists_and_is_not_ignored() -> None:
    allowed = {
        line[1:].removesuffix("/**")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    for stage in stages():
        for name, rest in stage:
            if name == "COPY" and "--from" not in rest:
                for source in rest.split()[:-1]:
                    assert (ROOT / source).exists(), source
                    assert source in allowed, source


@pytest.mark.parametrize("arguments", [["--check"]])
def test_crd_template_is_up_to_date(arguments: list[str]) -> None:
    script = ROOT / "charts" / "generate.py"
    result = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_braces_in_the_crd_stay_text() -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("generate", ROOT / "charts" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    crd = "metadata:\n  name: modeldeployments.shardwright.dev\nspec:\n  text: a {{b}} c\n"
    assert 'text: a {{ "{{" }}b}} c' in module.template(crd)
