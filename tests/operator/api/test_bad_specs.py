"""parse_spec answers every bad spec with one sentence that names the field."""

import pytest

from bad_specs import BAD_SPECS, BadSpec
from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.v1alpha1 import parse_spec


@pytest.mark.parametrize("bad", [pytest.param(bad, id=bad.id) for bad in BAD_SPECS])
def test_refusal_names_field_and_limit(bad: BadSpec) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(bad.spec())

    assert caught.value.field == bad.field
    assert bad.local in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_model() -> None:
    with pytest.raises(SpecError, match=r"^spec\.model\.name is not given, but it is required"):
        parse_spec({"model": {}})


def test_no_spec_at_all() -> None:
    with pytest.raises(SpecError, match=r"^spec is not given, but .*; give spec\.model\.name\.$"):
        parse_spec(None)


def test_several_mistakes_are_counted() -> None:
    with pytest.raises(SpecError, match=r"\(2 more fields to correct\)\.$"):
        parse_spec({"model": {"name": "a b"}, "replicas": "1", "slo": {"concurrency": 0}})


def test_long_values_are_shortened() -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec({"model": {"name": "x" * 10_000}})

    assert len(str(caught.value)) < 300
