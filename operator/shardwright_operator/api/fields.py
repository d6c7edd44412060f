"""What the fields of the resource are made of: the base record, texts with a form, and rules in CEL.

Each rule exists twice, since the API server speaks CEL and the command line has no API server. Both stand
side by side here or in the same model, and a test holds the two verdicts against each other.
"""

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict, JsonValue

from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.quantities import (
    DURATION_PATTERN,
    QUANTITY_PATTERN,
    parse_duration_s,
    parse_quantity,
)

VALIDATIONS = "x-kubernetes-validations"
LIST_TYPE = "x-kubernetes-list-type"
LIST_MAP_KEYS = "x-kubernetes-list-map-keys"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"


class ApiRecord(BaseModel):
    """Base of everything in the resource: frozen, closed, camelCase on the wire."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, defer_build=True
    )

    def to_wire(self) -> dict[str, object]:
        """What the user wrote, as plain JSON: absent stays absent."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)


def rule(expression: str, message: str, *, field: str | None = None) -> JsonDict:
    """One CEL rule; ``field`` (``.name``) moves the blame to a child of the object that carries the rule."""
    found: JsonDict = {"rule": expression, "message": message}
    if field is not None:
        found["fieldPath"] = field
    return found


def rules(*found: JsonDict) -> JsonDict:
    """The schema extension that carries CEL rules."""
    return {VALIDATIONS: list[JsonValue](found)}


def at_least(low: float) -> JsonDict:
    """A lower bound that is no whole number: the API server cuts it to one when the value is a whole number.

    With ``minimum: 0.05`` alone it lets 0 through (kube-openapi's ``MinimumNativeType``, Kubernetes 1.36).
    """
    return rules(rule(f"self >= {low}", f"must be at least {low}"))


def map_of(key: str) -> JsonDict:
    """A list whose items are told apart by one field: server-side apply merges it item by item."""
    return {LIST_TYPE: "map", LIST_MAP_KEYS: [key]}


def _duration_rules(low: str, high: str) -> JsonDict:
    # duration() raises on junk and its text would stand in front of ours, so the form is tested first.
    expression = (
        f"self.matches('{DURATION_PATTERN.replace(chr(92), chr(92) * 2)}') ? "
        f"duration(self) >= duration('{low}') && duration(self) <= duration('{high}') : false"
    )
    return rules(rule(expression, f"must be a duration such as 150ms, 2.5s or 1m30s, from {low} to {high}"))


def _duration_text(value: object) -> object:
    # `30` without a unit is a number in YAML. "It must be a text" led on to '30', the same mistake.
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise SpecError(
            field="",
            value=value,
            limit=FORMS[DURATION_PATTERN],
            remedy="write its unit behind it: ms, s, m or h",
        )
    return value


def _duration_between(low: str, high: str) -> Callable[[str], str]:
    low_s, high_s = parse_duration_s(low), parse_duration_s(high)

    def check(value: str) -> str:
        if not low_s <= parse_duration_s(value) <= high_s:
            raise SpecError(
                field="",
                value=value,
                limit=f"it must be from {low} to {high}",
                remedy="give a duration within these bounds",
            )
        return value

    return check


def _quantity_text(value: object) -> object:
    # YAML reads `16` as a number; Kubernetes takes both and so do we.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _quantity_in_range(value: str) -> str:
    if parse_quantity(value) > LARGEST_QUANTITY:
        raise SpecError(
            field="", value=value, limit="it is beyond what Kubernetes can count", remedy="give less"
        )
    return value


def _quantity_at_least(low: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if parse_quantity(value) < parse_quantity(low):
            raise SpecError(
                field="",
                value=value,
                limit=f"it must be at least {low}",
                remedy="give a larger quantity, with its unit",
            )
        return value

    return check


def _quantity_schema(*extra: JsonDict) -> JsonDict:
    schema: JsonDict = {
        INT_OR_STRING: True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY_PATTERN,
        "maxLength": 32,
        "minimum": 0,  # the pattern holds for texts only
    }
    for addition in extra:
        schema.update(addition)
    return schema


MIN_VOLUME = "64Mi"
LARGEST_QUANTITY = 2**63 - 1

Flag = Annotated[bool, Strict()]
Int = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Latency = Annotated[
    str,
    Field(pattern=DURATION_PATTERN, max_length=32, json_schema_extra=_duration_rules("1ms", "1h")),
    BeforeValidator(_duration_text),
    AfterValidator(_duration_between("1ms", "1h")),
]
Period = Annotated[
    str,
    Field(pattern=DURATION_PATTERN, max_length=32, json_schema_extra=_duration_rules("1s", "24h")),
    BeforeValidator(_duration_text),
    AfterValidator(_duration_between("1s", "24h")),
]
_QuantityText = Annotated[
    str,
    Field(pattern=QUANTITY_PATTERN, max_length=32),
    BeforeValidator(_quantity_text),
    AfterValidator(_quantity_in_range),
]
Quantity = Annotated[_QuantityText, WithJsonSchema(_quantity_schema())]
VolumeSize = Annotated[
    _QuantityText,
    AfterValidator(_quantity_at_least(MIN_VOLUME)),
    WithJsonSchema(
        _quantity_schema(
            rules(
                rule(
                    "isQuantity(string(self)) && "
                    f"quantity(string(self)).compareTo(quantity('{MIN_VOLUME}')) >= 0",
                    f"must be a quantity such as 16Gi, at least {MIN_VOLUME}",
                )
            )
        )
    ),
]

MODEL_NAME_PATTERN = r"^[A-Za-z0-9_/][A-Za-z0-9._/-]*$"
OBJECT_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
DATA_KEY_PATTERN = r"^[-._a-zA-Z0-9]+$"
LABEL_KEY_PATTERN = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
LABEL_VALUE_PATTERN = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
ENV_NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
WORD_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
REVISION_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$"
IMAGE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$"
VERSION_PATTERN = r"^[0-9]+\.[0-9]+(\.[0-9]+)?$"
INTERFACE_PATTERN = r"^[=^]?[A-Za-z0-9][A-Za-z0-9._:,-]*$"
PATH_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._/-]*$"
URL_PATTERN = r"^https?://[^\s@]+$"

FORMS: dict[str, str] = {
    DURATION_PATTERN: "it must be a duration such as 150ms, 2.5s or 1m30s",
    QUANTITY_PATTERN: "it must be a quantity such as 80Gi, 1.5G or 500m",
    MODEL_NAME_PATTERN: "it must be a Hub id or a path of letters, digits and . _ / -",
    OBJECT_NAME_PATTERN: "it must be the name of a Kubernetes object: lower-case letters, digits, . and -",
    DATA_KEY_PATTERN: "it must be a key of a Secret or ConfigMap: letters, digits, . _ and -",
    LABEL_KEY_PATTERN: "it must be a label key such as topology.kubernetes.io/zone",
    LABEL_VALUE_PATTERN: "it must be a label value: letters, digits, . _ and -",
    ENV_NAME_PATTERN: "it must be an environment variable's name: letters, digits and _",
    WORD_PATTERN: "it must be one word of letters, digits, . _ and -",
    REVISION_PATTERN: "it must be a branch, a tag, a commit, or a reference such as refs/pr/3",
    IMAGE_PATTERN: "it must be an image reference such as vllm/vllm-openai:v0.32.0",
    VERSION_PATTERN: "it must be a version such as 0.32 or 0.32.0",
    INTERFACE_PATTERN: "it must be a network interface, or a list of them, such as eth0 or eth0,eth1",
    PATH_PATTERN: "it must be a relative path of letters, digits and . _ / -",
    URL_PATTERN: "it must be an http or https address without credentials",
}
"""What each pattern asks for, in words: a regular expression is no help to somebody with a typo."""

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=OBJECT_NAME_PATTERN)]
DataKey = Annotated[str, Field(min_length=1, max_length=253, pattern=DATA_KEY_PATTERN)]
LabelKey = Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_KEY_PATTERN)]
LabelValue = Annotated[str, Field(max_length=63, pattern=LABEL_VALUE_PATTERN)]
Word = Annotated[str, Field(min_length=1, max_length=64, pattern=WORD_PATTERN)]
GitReference = Annotated[str, Field(min_length=1, max_length=128, pattern=REVISION_PATTERN)]
