"""Which fields of the CRD that this operator was built for does a cluster's own schema not keep?

An API server cuts off what its CRD does not name, on reading too. A spec without a field that the user wrote
is another wish: an API that ``network.clients`` had closed would open. A schema that keeps more does no harm.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from shardwright_operator.api.crd import root_schema
from shardwright_operator.api.fields import PRESERVE

SHOWN = 5


def cut_fields(served: Mapping[str, Any]) -> list[str]:
    """Paths of the fields that a served schema of the resource would cut off, a lost object as one."""
    return list(_cut(root_schema(), served, ""))


def describe_cut(fields: list[str]) -> str:
    """The fields in words; not more of them than one can read."""
    more = f" and {len(fields) - SHOWN} more" if len(fields) > SHOWN else ""
    return f"{', '.join(fields[:SHOWN])}{more}"


def _cut(wanted: Mapping[str, Any], served: Mapping[str, Any], path: str) -> Iterator[str]:
    if served.get(PRESERVE):
        return
    if wanted.get(PRESERVE):
        yield f"{path}.*"
        return
    fields = served.get("properties", {})
    for name, child in wanted.get("properties", {}).items():
        where = f"{path}.{name}" if path else name
        if name in fields:
            yield from _cut(child, fields[name], where)
        else:
            yield where
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if key in wanted:
            below = served.get(key)
            if isinstance(below, Mapping):
                yield from _cut(wanted[key], below, f"{path}{mark}")
            elif not below:
                yield f"{path}{mark}"
