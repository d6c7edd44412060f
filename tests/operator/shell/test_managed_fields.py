"""Managed fields are cut out of JSON as bytes; what has another form than the API server's stays whole."""

import json
from typing import Any

import pytest

from shardwright_operator.cluster.managed_fields import without_managed_fields

FIELDS = [
    {
        "manager": "m",
        "fieldsV1": {"f:spec": {'k:{"name":"A}]},"}': {".": {}, "f:value": {}}, 'v:"x]"': {}}},
    },
    {"manager": "n", "subresource": "status"},
]
METADATA = {"name": "a", "labels": {"a": "}]},"}}


def written(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def body(*, fields: Any = None, **rest: Any) -> dict[str, Any]:
    return {"metadata": {**METADATA, **({} if fields is None else {"managedFields": fields})}, **rest}


SPEC = {"env": [{"name": 'A}]},"', "value": ',"managedFields":['}]}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(body(fields=FIELDS, spec=SPEC), body(spec=SPEC), id="an object"),
        pytest.param(
            {"items": [body(fields=FIELDS, spec=SPEC), body(fields=FIELDS, data={})]},
            {"items": [body(spec=SPEC), body(data={})]},
            id="a list",
        ),
        pytest.param(body(spec=SPEC), body(spec=SPEC), id="nothing to cut"),
        pytest.param(body(fields=[], spec=SPEC), body(fields=[], spec=SPEC), id="none of any manager"),
        pytest.param(
            {"items": [body(fields=FIELDS), body(fields=FIELDS, spec=SPEC)]},
            {"items": [body(fields=FIELDS), body(fields=FIELDS, spec=SPEC)]},
            id="nothing follows the metadata",
        ),
    ],
)
def test_managed_fields_are_cut(text: Any, want: Any) -> None:
    assert json.loads(without_managed_fields(written(text))) == want
