"""What the documents point at is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "charts/**/*.md", "examples/**/*.md", "tests/*/*.md")
    for path in ROOT.glob(pattern)
)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
TOP = "|".join(sorted(path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."))


def anchors(text: str) -> set[str]:
    """Names of the headings, as links call them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", path.read_text()):
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link


@pytest.mark.parametrize("document", DOCUMENTS)
def test_targets_and_paths_that_are_named_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    words = [word for line in re.findall(r"`make ([^`]+)`|^ +make (.*)", text, re.MULTILINE) for word in line]
    made = {target for word in words for target in word.partition("#")[0].split() if target.islower()}
    named = set(re.findall(rf"`((?:{TOP})/[\w./-]+)`", text))

    assert {target for target in made if "=" not in target} - TARGETS - {"-s"} == set()
    assert {name for name in named if not (ROOT / name).exists()} == set()
