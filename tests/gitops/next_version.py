"""A next version of the operator: this checkout's sources with some constants changed.

It renders pods and sets otherwise, plans by other rules and keeps a plan with a field that this version does
not know: what a real next version would do. Each change is made to the text, so that it is a program of its
own with its own constants, and a change that finds nothing to replace fails.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from operator_process import ROOT


class Change(NamedTuple):
    """One text in one file, and what stands there in the next version."""

    file: str
    old: str
    new: str


BUILD = "operator/shardwright_operator/build"

TEMPLATES = Change(f"{BUILD}/command.py", "DRAIN_S = 30\n", "DRAIN_S = 31\n")
"""Pods would get other words and another grace period."""
LAUNCHER = Change("operator/shardwright_operator/launcher/launcher.py", '"""', '"""The next version\'s. ')
"""New pods would get other files."""
PLANNER = Change("planner/shardwright_planner/version.py", 'PLANNER_VERSION = "1"', 'PLANNER_VERSION = "2"')
"""Plans would say that they were made by other rules."""
PLAN_FIELD = Change(
    "planner/shardwright_planner/plan.py",
    '    feasible: bool = Field(description="Whether the plan may be deployed.")\n',
    '    feasible: bool = Field(description="Whether the plan may be deployed.")\n'
    '    omen: Note = Field(default="good", description="What only the next version knows.")\n',
)
"""Plans have one more field, in the revisions and in the status."""
SETS = Change(f"{BUILD}/stateful_set.py", "HISTORY_LIMIT = 1\n", "HISTORY_LIMIT = 2\n")
"""A set has another field outside of its pods."""
IMMUTABLE = Change(
    f"{BUILD}/stateful_set.py", '"podManagementPolicy": "Parallel"', '"podManagementPolicy": "OrderedReady"'
)
"""A set has another field that can never be changed."""

INNER = (TEMPLATES, LAUNCHER, PLANNER)
"""All that a resource may only meet when it is edited."""


def next_version(folder: Path, changes: Iterable[Change]) -> Path:
    """Write the changed sources; raises an AssertionError for a text that is not there exactly once."""
    ignored = shutil.ignore_patterns("__pycache__")
    for root in ("operator", "planner"):
        shutil.copytree(ROOT / root, folder / root, ignore=ignored)
    for change in changes:
        path = folder / change.file
        text = path.read_text()
        assert change.old in text, f"{change.file} has no {change.old!r} any more"
        path.write_text(text.replace(change.old, change.new, 1))
    return folder
