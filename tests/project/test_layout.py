"""Guards of the repository's own shape."""

import operator
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST_MODULE = 350


@pytest.mark.parametrize("root", ["operator", "planner"])
def test_a_source_root_is_no_package(root: str) -> None:
    # operator/__init__.py would shadow Python's own operator module: nothing starts any more.
    assert not (ROOT / root / "__init__.py").exists()
    assert operator.itemgetter(0)(("kept",)) == "kept"


def test_the_planner_needs_pydantic_alone() -> None:
    blocked = "kopf kubernetes aiohttp yaml prometheus_client shardwright_operator"
    program = (
        "import sys\n"
        f"for name in {blocked.split()!r}: sys.modules[name] = None\n"
        "import shardwright_planner, shardwright_planner.explanation, shardwright_planner.ledger\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def _tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return [ROOT / name for name in listed.stdout.splitlines()]


def test_the_repository_names_no_package_host_and_no_home() -> None:
    # A lock file with addresses works on one network only, and a path of one machine on none but that. The
    # engine's home is a path inside the pods.
    hosts = rb"pypi\.org|pythonhosted|proxy\.golang|registry\.npmjs"
    forbidden = re.compile(hosts + rb"|/root/|/home/(?!engine/)[a-z]+/")
    found = [
        str(path.relative_to(ROOT))
        for path in _tracked()
        if path.is_file() and path != Path(__file__) and forbidden.search(path.read_bytes())
    ]
    assert found == []


def test_no_module_of_the_product_outgrows_one_noun() -> None:
    # main.py had come to 353 lines, the process's life and its end, and nobody had seen it.
    modules = [path for root in ("operator", "planner") for path in (ROOT / root).rglob("*.py")]
    lengths = {path.relative_to(ROOT).as_posix(): path.read_text().count("\n") for path in modules}
    assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}
