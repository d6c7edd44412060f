"""The spec's records: everything can be said, what was said comes back, and what was not stays absent."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from full_spec import FULL_SPEC
from shardwright_operator.api.crd import crd
from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.v1alpha1 import parse_spec

MODEL = {"model": {"name": "meta-llama/Llama-3.1-8B"}}


def _fields(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    """Fields of the schema that the value does not have."""
    if isinstance(value, list):
        for child in schema["items"].get("properties", {}):
            if not any(child in item for item in value):
                yield f"{path}[].{child}"
        return
    for name, child in schema.get("properties", {}).items():
        if name not in value:
            yield f"{path}.{name}"
        elif isinstance(value[name], (dict, list)):
            yield from _fields(child, value[name], f"{path}.{name}")


def test_full_spec_has_every_field() -> None:
    """Hence no new field can be forgotten in the tests below; only the other source is left out."""
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]

    assert list(_fields(schema, FULL_SPEC, "spec")) == [
        # Of two that exclude each other one is given.
        "spec.model.source.persistentVolumeClaim",
        "spec.scheduling.admission",
    ]


def test_full_spec_comes_back() -> None:
    wanted = copy.deepcopy(FULL_SPEC)
    # Quantities may be numbers in YAML; they are texts from then on.
    wanted["engine"]["resources"]["requests"]["cpu"] = "16"
    wanted["storage"]["cacheSize"] = "107374182400"

    assert parse_spec(FULL_SPEC).to_wire() == wanted


def test_bare_spec_has_empty_sections_and_nothing_on_the_wire() -> None:
    spec = parse_spec(MODEL)

    assert spec.to_wire() == MODEL
    assert (spec.replicas, spec.slo.concurrency, spec.engine.api_port) == (1, None, 8000)
    assert (spec.rollout.surge_groups, spec.rollout.is_paused) == (0, False)
    assert (spec.recovery.restart_limit, spec.recovery.backoff_s, spec.recovery.startup_timeout_s) == (
        10,
        10.0,
        None,
    )


def test_null_is_absent() -> None:
    """Templates render an unset value as null; the API server drops it before it is stored."""
    given = {"model": {**MODEL["model"], "dtype": None}, "replicas": None, "slo": None, "workload": {}}

    assert parse_spec({**given, "engine": {"env": None}}) == parse_spec(MODEL)


def test_whole_number_with_a_point_is_a_whole_number() -> None:
    spec = parse_spec({**MODEL, "replicas": 3.0, "engine": {"resources": {"limits": {"cpu": 8.0}}}})

    assert (spec.replicas, spec.engine.resources and spec.engine.resources.limits) == (3, {"cpu": "8"})


def test_quantity_beyond_what_kubernetes_counts_is_refused() -> None:
    with pytest.raises(SpecError, match="beyond what Kubernetes can count"):
        parse_spec({**MODEL, "storage": {"cacheSize": "8Ei"}})


def test_null_in_a_config_stays() -> None:
    config = {"quantization_config": None, "hidden_size": 64}

    assert parse_spec({"model": {"name": "own/model", "config": config}}).model.config == config


def test_first_wait_above_the_default_cap_raises_the_cap() -> None:
    assert parse_spec({**MODEL, "recovery": {"backoff": "30m"}}).recovery.max_backoff_s == 1800.0


def test_token_secret_has_a_default_key() -> None:
    source = {"huggingFace": {"tokenSecretRef": {"name": "hub"}}}

    assert parse_spec({"model": {**MODEL["model"], "source": source}}).model.token_secret == ("hub", "token")


def test_key_with_a_line_break_stays_on_one_line() -> None:
    with pytest.raises(SpecError, match=r"^spec\.'a\\nb' is"):
        parse_spec({**MODEL, "a\nb": 1})


def test_records_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        parse_spec(MODEL).replicas = 2  # type: ignore[misc]


def test_a_config_nested_without_end_is_refused_without_going_down() -> None:
    nested: dict[str, Any] = {}
    for _ in range(5000):
        nested = {"a": nested}

    with pytest.raises(SpecError, match=r"spec\.model\.config is nested more deeply.*32 levels"):
        parse_spec({"model": {"name": "my/model", "config": nested}})


def test_a_key_that_yaml_reads_as_a_number_is_named_as_one() -> None:
    with pytest.raises(SpecError, match=r"spec\.1 is 2, but there is no such field"):
        parse_spec({**MODEL, 1: 2})
