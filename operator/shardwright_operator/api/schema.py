"""From pydantic's JSON schema to the structural schema that a CRD takes, failing closed.

pydantic writes shapes that an API server refuses or silently loses (``$ref``, ``anyOf`` with null, ``const``,
numeric ``exclusiveMinimum``, ``additionalProperties`` beside properties). What is not known here raises: a
constraint that vanished on the way would be found by a user, much later.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from shardwright_operator.api.fields import INT_OR_STRING, LIST_MAP_KEYS, LIST_TYPE, PRESERVE, VALIDATIONS

Schema = dict[str, Any]

_COPIED = frozenset(
    {
        "description",
        "enum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "pattern",
        "type",
        INT_OR_STRING,
        LIST_MAP_KEYS,
        LIST_TYPE,
        PRESERVE,
        VALIDATIONS,
    }
)
_HANDLED = frozenset(
    {
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "default",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "items",
        "properties",
        "required",
        "title",
    }
)
_INT_OR_STRING_PAIR = [{"type": "integer"}, {"type": "string"}]


class SchemaError(ValueError):
    """A model says something that a structural schema cannot, or leaves something without a bound."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


def structural_schema(model: type[BaseModel], path: str, *, defaults: bool = True) -> Schema:
    """The structural schema of a model; ``path`` is where it stands in the resource, for messages.

    Without ``defaults`` none is kept: in a status the API server would add what the operator did not write.

    Raises:
        SchemaError: for anything that cannot be expressed, has no bound, or has no description.
    """
    source = model.model_json_schema(by_alias=True)
    return _Converter(source.get("$defs", {}), defaults=defaults).convert(source, path, ())


class _Converter:
    def __init__(self, definitions: Mapping[str, Schema], *, defaults: bool) -> None:
        self._definitions = definitions
        self._defaults = defaults

    def convert(self, source: Mapping[str, Any], path: str, inside: tuple[str, ...]) -> Schema:
        merged, inside = self._resolved(source, path, inside)
        unknown = sorted(set(merged) - _COPIED - _HANDLED)
        if unknown:
            raise SchemaError(path, f"no rule for {', '.join(unknown)}")
        node: Schema = {key: merged[key] for key in sorted(_COPIED & set(merged))}
        if "const" in merged:
            node["enum"] = [merged["const"]]
        for bound in ("Minimum", "Maximum"):
            exclusive = merged.get(f"exclusive{bound}")
            if exclusive is not None:
                node[bound.lower()] = exclusive
                node[f"exclusive{bound}"] = True
        if self._defaults and _is_value(merged.get("default")):
            node["default"] = merged["default"]
        self._children(node, merged, path, inside)
        _check_node(node, path)
        return node

    def _resolved(
        self, source: Mapping[str, Any], path: str, inside: tuple[str, ...]
    ) -> tuple[Schema, tuple[str, ...]]:
        """The node without references and without null; what stands beside them wins."""
        merged = dict(source)
        while "$ref" in merged or ("anyOf" in merged and not merged.get(INT_OR_STRING)):
            if "$ref" in merged:
                name = str(merged.pop("$ref")).removeprefix("#/$defs/")
                if name in inside:
                    raise SchemaError(path, f"{name} contains itself")
                inside = (*inside, name)
                merged = {**self._definitions[name], **merged}
                continue
            options = [option for option in merged.pop("anyOf") if option != {"type": "null"}]
            if len(options) != 1:
                raise SchemaError(path, "a union of several types; write one object and a CEL rule")
            both = [*options[0].get(VALIDATIONS, ()), *merged.get(VALIDATIONS, ())]
            merged = {**options[0], **merged, **({VALIDATIONS: both} if both else {})}
        return merged, inside

    def _children(self, node: Schema, merged: Mapping[str, Any], path: str, inside: tuple[str, ...]) -> None:
        if "properties" in merged:
            node["properties"] = {
                name: self.convert(child, f"{path}.{name}", inside)
                for name, child in merged["properties"].items()
            }
            required = sorted(merged.get("required", ()))
            if required:
                node["required"] = required
        if "items" in merged:
            node["items"] = self.convert(merged["items"], f"{path}[]", inside)
        values = merged.get("additionalProperties")
        if isinstance(values, Mapping):
            node["additionalProperties"] = self.convert(values, f"{path}{{}}", inside)
        elif values is True and not merged.get(PRESERVE):
            raise SchemaError(path, "an open object must say that it preserves unknown fields")
        if merged.get(INT_OR_STRING):
            if merged.get("anyOf") != _INT_OR_STRING_PAIR:
                raise SchemaError(path, "an int-or-string needs the two types in anyOf")
            node["anyOf"] = [dict(option) for option in _INT_OR_STRING_PAIR]


def _is_value(default: object) -> bool:
    # Absent fields are None or empty records in Python; neither is a default that may be stored.
    return default is not None and default not in ({}, [], "")


def _check_node(node: Schema, path: str) -> None:
    if not node.get("description") and not path.endswith(("[]", "{}")):
        raise SchemaError(path, "no description for kubectl explain")
    kind = "int-or-string" if node.get(INT_OR_STRING) else node.get("type")
    if kind is None:
        raise SchemaError(path, "no type")
    needed = {
        "string": ("maxLength",),
        "int-or-string": ("maxLength", "pattern"),
        "array": ("maxItems", "items"),
        "integer": ("minimum", "maximum"),
        "number": ("minimum", "maximum"),
    }.get(kind, ())
    if kind == "object" and "additionalProperties" in node:
        needed = ("maxProperties",)
    if kind == "object" and "properties" not in node and "additionalProperties" not in node:
        needed = (PRESERVE,)
    missing = [] if "enum" in node else [key for key in needed if key not in node]
    if missing:
        raise SchemaError(path, f"{kind} without {', '.join(missing)}")
    if kind == "array" and node.get(LIST_TYPE) == "map":
        keys = node.get(LIST_MAP_KEYS, ())
        absent = [key for key in keys if key not in node["items"].get("required", ())]
        if not keys or absent:
            raise SchemaError(path, "the keys of a map list must be required fields of its items")
