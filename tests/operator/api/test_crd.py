"""The generated CRD: committed, structural by Kubernetes' rules, and complete beside the schema."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright_operator.api.crd import crd, crd_yaml

ROOT = Path(__file__).parents[3]
FILE = ROOT / "crds" / "shardwright.dev_modeldeployments.yaml"

ALLOWED = {
    "type",
    "description",
    "properties",
    "additionalProperties",
    "items",
    "required",
    "enum",
    "default",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "pattern",
    "anyOf",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}


def version() -> dict[str, Any]:
    found: dict[str, Any] = crd()["spec"]["versions"][0]
    return found


def nodes(schema: dict[str, Any] | None = None, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of the schema with its path."""
    schema = version()["schema"]["openAPIV3Schema"] if schema is None else schema
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if key in schema:
            yield from nodes(schema[key], path + suffix)


OWN = [(path, node) for path, node in nodes() if path not in {".apiVersion", ".kind", ".metadata"}]


def test_committed_file_is_current() -> None:
    assert FILE.read_text(encoding="utf-8") == crd_yaml(), "run: shardwright crd > crds/" + FILE.name


def test_file_is_plain_yaml() -> None:
    text = FILE.read_text(encoding="utf-8")

    assert yaml.safe_load(text) == crd()
    assert "&id" not in text


def test_only_keywords_of_structural_schemas() -> None:
    assert {key for _, node in OWN for key in node} <= ALLOWED


def test_every_node_has_one_type() -> None:
    untyped = [p for p, n in OWN if ("type" in n) == bool(n.get("x-kubernetes-int-or-string"))]

    assert untyped == []


def test_properties_and_additional_properties_exclude_each_other() -> None:
    assert [p for p, n in OWN if "properties" in n and "additionalProperties" in n] == []


def test_everything_is_bounded() -> None:
    bounds = {"string": "maxLength", "array": "maxItems", "integer": "maximum", "number": "maximum"}
    unbounded = [p for p, n in OWN if "enum" not in n and bounds.get(n.get("type", ""), "type") not in n]
    maps = [p for p, n in OWN if "additionalProperties" in n and "maxProperties" not in n]

    assert [p for p in unbounded if not p.endswith(("sharedMemory", "cacheSize", "{}"))] == []
    assert maps == []


def test_everything_is_described() -> None:
    assert [p for p, n in OWN if not n.get("description") and not p.endswith(("[]", "{}"))] == []


def test_only_stable_defaults() -> None:
    assert {p: n["default"] for p, n in OWN if "default" in n} == {
        ".spec.replicas": 1,
        ".status": {"observedGeneration": -1},
    }


def test_required_fields() -> None:
    assert {p: n["required"] for p, n in OWN if "required" in n and not p.startswith(".status")} == {
        "": ["spec"],
        ".spec": ["model"],
        ".spec.model": ["name"],
        ".spec.model.chatTemplateRef": ["key", "name"],
        ".spec.model.source.huggingFace.tokenSecretRef": ["name"],
        ".spec.model.source.persistentVolumeClaim": ["claimName"],
        ".spec.engine.env[]": ["name"],
        ".spec.engine.env[].valueFrom.secretKeyRef": ["key", "name"],
        ".spec.engine.env[].valueFrom.configMapKeyRef": ["key", "name"],
        ".spec.engine.env[].valueFrom.fieldRef": ["fieldPath"],
        ".spec.engine.apiKeySecretRef": ["key", "name"],
        ".spec.engine.imagePullSecrets[]": ["name"],
        ".spec.storage.modelCache": ["claimName"],
    }


def test_only_the_config_is_open() -> None:
    assert [p for p, n in OWN if n.get("x-kubernetes-preserve-unknown-fields")] == [".spec.model.config"]


def test_keyed_lists() -> None:
    keyed = {p: n["x-kubernetes-list-map-keys"] for p, n in OWN if "x-kubernetes-list-map-keys" in n}

    assert keyed == {
        ".spec.engine.env": ["name"],
        ".spec.engine.imagePullSecrets": ["name"],
        ".status.conditions": ["type"],
        ".status.groups": ["index"],
    }


def test_every_rule_says_what_to_do() -> None:
    found = [rule for _, node in OWN for rule in node.get("x-kubernetes-validations", ())]

    assert len(found) > 30
    assert [rule for rule in found if not rule["message"] or "\n" in rule["message"] + rule["rule"]] == []


def test_subresources() -> None:
    assert version()["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


@pytest.mark.parametrize(
    ("priority", "names"),
    [
        pytest.param(0, ["Model", "TP", "PP", "Groups", "Ready", "Reason", "Age"], id="narrow"),
        pytest.param(1, ["GPUs", "GPU", "Revision", "Message"], id="wide"),
    ],
)
def test_printer_columns(priority: int, names: list[str]) -> None:
    columns = version()["additionalPrinterColumns"]

    assert [c["name"] for c in columns if c.get("priority", 0) == priority] == names


def test_small_enough_for_client_side_apply() -> None:
    # `kubectl apply` keeps the whole object in an annotation, which may have 262,144 bytes.
    assert len(yaml.safe_dump(crd())) < 200_000
