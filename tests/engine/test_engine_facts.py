"""The planner's data about vLLM is what the pinned vLLM says; our own lists name what exists there."""

import json
from typing import Any

import pytest

from engine_environment import Environment
from engine_facts import DATA, derived
from shardwright_operator.api.extra_args import JOINED, REFUSED
from shardwright_operator.api.reserved_env import RESERVED
from shardwright_planner.engine import find_engine

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def facts(engine: Environment) -> dict[str, Any]:
    """What the pinned engine says now."""
    version, found = derived(engine)
    assert version == "0.32"
    return found


def test_the_data_is_what_the_engine_says(facts: dict[str, Any]) -> None:
    kept = json.loads(DATA.read_text())["versions"]["0.32"]
    changed = {key for key in kept.keys() | facts.keys() if kept.get(key) != facts.get(key)}
    assert not changed, "make engine-facts"


def test_the_planner_reads_it(facts: dict[str, Any]) -> None:
    engine = find_engine("0.32")
    assert dict(engine.quantizations) == facts["quantizations"]
    assert engine.pipeline_unsupported == set(facts["pipelineUnsupported"])


def test_nearly_every_model_class_could_be_read(facts: dict[str, Any]) -> None:
    assert len(facts["unread"]) <= 10


def test_refused_arguments_are_options_of_the_engine(facts: dict[str, Any]) -> None:
    ours = {option for options in REFUSED.values() for option in options} | set(JOINED)
    assert ours - set(facts["options"]) == set()


def test_reserved_variables_of_the_engine_exist(facts: dict[str, Any]) -> None:
    ours = {name for names in RESERVED.values() for name in names if name.startswith("VLLM_")}
    assert ours - set(facts["variables"]) == set()
