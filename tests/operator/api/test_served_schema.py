"""Fields of the resource that a served schema would cut off."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from shardwright_operator.api.crd import root_schema
from shardwright_operator.api.served_schema import cut_fields, describe_cut

Change = Callable[[dict[str, Any]], object]


def fields(schema: dict[str, Any], *path: str) -> dict[str, Any]:
    """The properties of the object at a path."""
    for name in path:
        schema = schema["properties"][name]
    return schema["properties"]


def served(*changes: Change) -> dict[str, Any]:
    schema = copy.deepcopy(root_schema())
    for change in changes:
        change(schema)
    return schema


def open_spec(schema: dict[str, Any]) -> None:
    schema["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(lambda _: None, [], id="the same"),
        pytest.param(lambda s: fields(s, "spec").update(omen={"type": "string"}), [], id="a newer one"),
        pytest.param(open_spec, [], id="one that keeps everything"),
        pytest.param(
            lambda s: fields(s, "spec", "network").pop("clients"), ["spec.network.clients"], id="a field"
        ),
        pytest.param(lambda s: fields(s).pop("status"), ["status"], id="an object as one"),
        pytest.param(
            lambda s: fields(s, "status")["groups"]["items"]["properties"].pop("phase"),
            ["status.groups[].phase"],
            id="a field of a list's items",
        ),
        pytest.param(
            lambda s: fields(s, "spec", "model")["config"].pop("x-kubernetes-preserve-unknown-fields"),
            ["spec.model.config.*"],
            id="the content of an open object",
        ),
    ],
)
def test_fields_that_are_cut(change: Change, want: list[str]) -> None:
    assert cut_fields(served(change)) == want


def test_another_version_s_schema_is_told_in_a_few_words() -> None:
    cut = cut_fields(served(lambda schema: schema["properties"].update(spec={"type": "object"})))
    assert describe_cut(cut).startswith("spec.replicas, spec.model, ")
    assert describe_cut(cut).endswith(f" and {len(cut) - 5} more")
