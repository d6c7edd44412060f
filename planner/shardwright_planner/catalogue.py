"""The built-in models, read from one data file on first use.

The file holds a few keys of public config.json files. They go through the same reader as a user's own file,
so that a catalogue model and its config give the same plan.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

from shardwright_planner.config import model_from_config
from shardwright_planner.model import ModelFacts


def find_model(name: str) -> ModelFacts | None:
    """The catalogue's facts for a Hub id, in any case; None if it is not there."""
    wanted = _index().get(name.strip().lower())
    return None if wanted is None else _facts(wanted)


def model_names() -> tuple[str, ...]:
    """Every Hub id of the catalogue, sorted."""
    return tuple(sorted(_index().values()))


@cache
def _facts(name: str) -> ModelFacts:
    data = _data()
    base = str(data["aliases"].get(name, name))
    config = _config(base)
    nominal = data["nominal"].get(base)
    return replace(
        model_from_config(config, name=name),
        source_digest="",
        nominal_parameters=nominal if isinstance(nominal, int) else None,
    )


def _config(name: str) -> Mapping[str, object]:
    data = _data()
    variant = data["variants"].get(name)
    if isinstance(variant, dict):
        return {**_config(str(variant["of"])), **variant["set"]}
    found = data["models"][name]
    assert isinstance(found, dict)  # noqa: S101  the file is ours; a test reads every entry
    return found


@cache
def _data() -> Mapping[str, Mapping[str, object]]:
    loaded = json.loads(files("shardwright_planner").joinpath("catalogue.json").read_text(encoding="utf-8"))
    return {section: loaded[section] for section in ("models", "variants", "aliases", "nominal")}


@cache
def _index() -> Mapping[str, str]:
    data = _data()
    return {name.lower(): name for section in ("models", "variants", "aliases") for name in data[section]}
