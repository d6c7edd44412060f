"""The README's table of reasons against the code's."""

import re
from collections import Counter
from pathlib import Path

from shardwright_operator.api.constants import Reason

README = Path(__file__).parents[2] / "README.md"


def test_every_reason_stands_once_in_the_table_of_what_to_do() -> None:
    """Who alerts on a reason looks it up there; a row of a reason that does not exist misleads."""
    section = README.read_text().partition("## When a group does not serve")[2].partition("\n## ")[0]
    cells = [row.split(" | ") for row in section.splitlines() if row.startswith("| `")]
    named = Counter(word for cell in cells for word in re.findall(r"`(\w+)`", cell[0]))
    assert named == Counter(str(reason) for reason in Reason)
    assert [cell[0] for cell in cells if len(cell) != 3] == []
