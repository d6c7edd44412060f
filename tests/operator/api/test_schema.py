"""The converter: each shape that it knows, and a refusal for everything else."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, create_model

from shardwright_operator.api.fields import ApiRecord, Int, Quantity, map_of, rule, rules
from shardwright_operator.api.schema import SchemaError, structural_schema


class Inner(ApiRecord):
    """Inner record."""

    name: Annotated[str, Field(max_length=8)] = Field(description="Its name.")


def _property(annotation: Any, *, default: Any = ..., **extra: Any) -> dict[str, Any]:
    """The schema of one field of that type."""
    field = Field(default, description="Said.", **extra)
    model = create_model("Outer", __base__=ApiRecord, __doc__="Outer record.", value=(annotation, field))
    schema = structural_schema(model, "spec")
    found: dict[str, Any] = schema["properties"]["value"]
    return found


@pytest.mark.parametrize(
    ("annotation", "default", "schema"),
    [
        pytest.param(
            Annotated[Int, Field(ge=1, le=8)] | None,
            None,
            {"type": "integer", "minimum": 1, "maximum": 8, "description": "Said."},
            id="optional is a type without null and without default",
        ),
        pytest.param(
            Annotated[float, Field(gt=0, lt=1)],
            ...,
            {
                "type": "number",
                "minimum": 0.0,
                "exclusiveMinimum": True,
                "maximum": 1.0,
                "exclusiveMaximum": True,
                "description": "Said.",
            },
            id="exclusive bounds are flags",
        ),
        pytest.param(
            Literal["on"],
            ...,
            {"type": "string", "enum": ["on"], "description": "Said."},
            id="constant is an enumeration of one",
        ),
        pytest.param(
            Annotated[dict[str, Annotated[str, Field(max_length=4)]], Field(max_length=2)],
            ...,
            {
                "type": "object",
                "maxProperties": 2,
                "additionalProperties": {"type": "string", "maxLength": 4},
                "description": "Said.",
            },
            id="map",
        ),
        pytest.param(
            Inner | None,
            None,
            {
                "type": "object",
                "description": "Said.",
                "properties": {"name": {"type": "string", "maxLength": 8, "description": "Its name."}},
                "required": ["name"],
            },
            id="reference is written out under the field's own description",
        ),
    ],
)
def test_shape_is_converted(annotation: Any, default: Any, schema: dict[str, Any]) -> None:
    assert _property(annotation, default=default) == schema


def test_quantity_is_int_or_string() -> None:
    schema = _property(Quantity)

    assert schema["x-kubernetes-int-or-string"] is True
    assert schema["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert "type" not in schema


def test_default_of_a_value_is_kept() -> None:
    assert _property(Annotated[Int, Field(ge=0, le=9)], default=1)["default"] == 1


def test_rules_of_type_and_field_are_both_kept() -> None:
    own = Annotated[str, Field(max_length=4, json_schema_extra=rules(rule("self != ''", "not empty")))]
    schema = _property(own | None, default=None, json_schema_extra=rules(rule("self != 'x'", "not x")))

    assert [r["message"] for r in schema["x-kubernetes-validations"]] == ["not empty", "not x"]


def _loose(**keywords: Any) -> Any:
    return Annotated[str, Field(max_length=4, json_schema_extra=keywords)]


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        pytest.param(str, "string without maxLength", id="text without a bound"),
        pytest.param(Int, "integer without minimum, maximum", id="number without bounds"),
        pytest.param(tuple[Inner, ...], "array without maxItems", id="list without a bound"),
        pytest.param(dict[str, bool], "object without maxProperties", id="map without a bound"),
        pytest.param(dict[str, Any], "must say that it preserves", id="open object"),
        pytest.param(Any, "no type", id="anything"),
        pytest.param(Annotated[str, Field(max_length=4)] | bool, "union of several types", id="union"),
        pytest.param(tuple[bool, bool], "no rule for prefixItems", id="tuple of positions"),
        pytest.param(Annotated[frozenset[bool], Field(max_length=2)], "no rule for uniqueItems", id="set"),
        pytest.param(_loose(examples=["a"]), "no rule for examples", id="unknown keyword"),
        pytest.param(
            _loose(format="date-time", multipleOf=2), "no rule for multipleOf", id="lost constraint"
        ),
    ],
)
def test_what_cannot_be_said_is_refused(annotation: Any, problem: str) -> None:
    with pytest.raises(SchemaError, match=rf"^spec\.value.*: .*{problem}"):
        _property(annotation)


def test_record_that_contains_itself_is_refused() -> None:
    class Node(BaseModel):
        """A node."""

        model_config = ConfigDict(extra="forbid")
        child: "Node | None" = Field(default=None, description="Child.")

    with pytest.raises(SchemaError, match="Node contains itself"):
        structural_schema(Node, "spec")


def test_field_without_description_is_refused() -> None:
    class Silent(ApiRecord):
        """Silent record."""

        value: bool

    with pytest.raises(SchemaError, match=r"^spec\.value: no description"):
        structural_schema(Silent, "spec")


def test_key_of_a_map_list_must_be_required() -> None:
    class Item(ApiRecord):
        """An item."""

        name: Annotated[str, Field(max_length=4)] | None = Field(default=None, description="Name.")

    with pytest.raises(SchemaError, match="keys of a map list must be required"):
        _property(Annotated[tuple[Item, ...], Field(max_length=2)], json_schema_extra=map_of("name"))
