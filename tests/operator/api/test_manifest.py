"""A manifest as the command line reads it: kind, name and spec, checked as the API server would."""

from typing import Any

import pytest

from shardwright_operator.api import names
from shardwright_operator.api.constants import MAX_NAME_LENGTH, MAX_REPLICAS, Role
from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.manifest import check_name, parse_manifest


def manifest(**changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama"},
        "spec": {"model": {"name": "meta-llama/Llama-3.1-8B"}},
        **changes,
    }


def placed(namespace: object) -> dict[str, Any]:
    return manifest(metadata={"name": "llama", "namespace": namespace})


def test_good_manifest() -> None:
    found = parse_manifest(manifest(metadata={"name": "llama", "namespace": "team-a"}))

    assert (found.name, found.namespace, found.spec.model.name) == (
        "llama",
        "team-a",
        "meta-llama/Llama-3.1-8B",
    )


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param([], "the document is a list, but a ModelDeployment is an object", id="list"),
        pytest.param(manifest(kind="Deployment"), "kind is 'Deployment', but only", id="kind"),
        pytest.param(manifest(apiVersion="v1"), "set apiVersion to shardwright.dev/v1alpha1", id="version"),
        pytest.param(manifest(metadata={}), "metadata.name is not given", id="no name"),
        pytest.param(manifest(metadata=None), "metadata.name is not given", id="no metadata"),
        pytest.param(
            manifest(metadata={"name": 405}),
            "metadata.name is 405, but a name is a text",
            id="number for a name",
        ),
        pytest.param(placed(5), "metadata.namespace is 5, but", id="number for a namespace"),
        pytest.param(placed("Team"), "metadata.namespace is 'Team', but", id="upper case in a namespace"),
        pytest.param(placed("../x"), "metadata.namespace is '../x', but", id="path for a namespace"),
        pytest.param(placed("a" * 64), "at most 63", id="namespace of 64 characters"),
        pytest.param(manifest(spec=None), "spec is not given", id="no spec"),
        pytest.param(manifest(spec=["model"]), "spec is a list", id="spec of another type"),
    ],
)
def test_bad_manifest(document: object, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_manifest(document)

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("a" * 63, "63 characters are more than 40", id="63 characters"),
        pytest.param("8b", "beginning with a letter", id="begins with a digit"),
        pytest.param("Llama", "lower-case", id="upper case"),
        pytest.param("llama.8b", "lower-case letters, digits and -", id="dot"),
        pytest.param("llama-", "lower-case letters, digits and -", id="ends with a dash"),
        pytest.param("llama\n", "lower-case letters, digits and -", id="ends with a line"),
        pytest.param("vllm", "choose a name that does not begin with vllm", id="vllm"),
        pytest.param("vllm-8b", "choose a name that does not begin with vllm", id="vllm-"),
        pytest.param(
            "a-0-ranks", "choose a name that does not end in a number and -ranks", id="ranks Service"
        ),
    ],
)
def test_bad_name(name: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_name(name)

    assert said in str(caught.value)


def test_names_beside_the_reserved_ones_are_free() -> None:
    assert [check_name(name) for name in ("a", "vllms", "my-vllm", "a" * 40)]


def test_children_of_the_longest_name_fit() -> None:
    """A StatefulSet's pods carry a label of its name and eleven characters; a label has at most 63."""
    name, index = "a" * MAX_NAME_LENGTH, MAX_REPLICAS

    sets = [names.stateful_set(name, index, role) for role in Role]

    assert max(len(found) for found in sets) + 11 <= 63
    assert len(names.ranks_service(name, index)) <= 63
    assert len(names.pod(name, index, 63)) <= 63
