"""The README's table of reasons against the code's, and its sample of the demo against what is decided."""

import re
from collections import Counter
from pathlib import Path

import yaml

from shardwright_operator.api.constants import Reason
from shardwright_operator.api.crd import crd
from simulated_world import SimulatedWorld

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLE = ROOT / "examples" / "llama-3.1-405b.yaml"


def test_every_reason_stands_once_in_the_table_of_what_to_do() -> None:
    """Who alerts on a reason looks it up there; a row of a reason that does not exist misleads."""
    section = README.partition("## When a group does not serve")[2].partition("\n## ")[0]
    cells = [row.split(" | ") for row in section.splitlines() if row.startswith("| `")]
    named = Counter(word for cell in cells for word in re.findall(r"`(\w+)`", cell[0]))
    assert named == Counter(str(reason) for reason in Reason)
    assert [cell[0] for cell in cells if len(cell) != 3] == []


def test_sample_of_the_resource_has_the_columns_that_are_printed() -> None:
    header = README.partition("$ kubectl get mdep\n")[2].splitlines()[0]
    (version,) = crd()["spec"]["versions"]
    printed = [c["name"] for c in version["additionalPrinterColumns"] if not c.get("priority")]
    assert header.split() == ["NAME", *(name.upper() for name in printed)]


def test_sample_of_a_lost_worker_is_what_the_demo_says() -> None:
    told = re.findall(r"^ +[\d.]+ s  (groups .*)$", README, re.MULTILINE)
    world = SimulatedWorld(yaml.safe_load(EXAMPLE.read_text())["spec"], name="llama-405b", nodes=0)
    for number in range(2):
        world.add_node(f"h100-{number}")
    world.settle()
    world.delete_pod("llama-405b-0-worker-1")
    seen = []
    while len(seen) < 2 or not seen[-1].startswith("groups 1/1"):
        world.step()
        ready = world.status["conditions"][0]
        seen.append(f"groups {world.status['ready']}  {ready['reason']}: {ready['message']}")
    assert [line for line in map(_timeless, told) if line not in map(_timeless, seen)] == []
    assert len(told) == 4


def _timeless(line: str) -> str:
    return re.sub(r" at \S+Z", " at TIME", line)
