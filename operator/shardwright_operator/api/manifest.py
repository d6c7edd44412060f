"""A ModelDeployment as a document: what stands around the spec, checked as the API server would.

The command line reads manifests with no API server at hand, and the operator's children are named after the
resource, hence the rules for names are kept here once for the CRD and for Python.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shardwright_operator.api.constants import API_VERSION, KIND, MAX_NAME_LENGTH
from shardwright_operator.api.errors import SpecError, described_type
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec, parse_spec

NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_NAMESPACE_PATTERN = "(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?"
RESERVED_NAME = "vllm"
"""Kubernetes gives pods variables of the Services in their namespace. Those of a Service named vllm begin
with VLLM_, and vLLM reads them as its own settings: VLLM_PORT then holds an address and no engine starts."""
RANKS_PATTERN = "-[0-9]+-ranks$"
"""The client Service of ``a-0-ranks`` would be the ranks Service of ``a``. Both come from one field manager,
so that server-side apply would let each take it from the other without a conflict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDeployment:
    """A manifest that passed every check."""

    name: str
    namespace: str
    spec: ModelDeploymentSpec
    raw_spec: Mapping[str, object]


def parse_manifest(document: object) -> ModelDeployment:
    """A ModelDeployment as read from JSON or YAML.

    Raises:
        SpecError: for the first thing that is wrong with it.
    """
    if not isinstance(document, Mapping):
        raise SpecError(
            field="the document",
            value=None if document is None else described_type(document),
            limit=f"a {KIND} is an object",
            remedy="give apiVersion, kind, metadata and spec",
        )
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(key) != wanted:
            raise SpecError(
                field=key,
                value=document.get(key),
                limit=f"only {API_VERSION} {KIND} is known here",
                remedy=f"set {key} to {wanted}",
            )
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    name = check_name(metadata.get("name"))
    raw = document.get("spec")
    spec = parse_spec(raw)
    return ModelDeployment(
        name=name,
        namespace=_namespace(metadata.get("namespace")),
        spec=spec,
        raw_spec=raw if isinstance(raw, Mapping) else {},
    )


def _namespace(value: object) -> str:
    """The namespace that a manifest gives, or ``default``."""
    if value is None or value == "":
        return "default"
    if not isinstance(value, str) or re.fullmatch(_NAMESPACE_PATTERN, value) is None:
        raise SpecError(
            field="metadata.namespace",
            value=value,
            limit="a namespace is a text of at most 63 lower-case letters, digits and -",
            remedy="give such a name, a number in quotes, or leave the field out",
        )
    return value


def check_name(name: object) -> str:
    """The name of a ModelDeployment.

    Raises:
        SpecError: for a name that a child could not be named after.
    """
    field = "metadata.name"
    if name is not None and not isinstance(name, str):
        raise SpecError(field=field, value=name, limit="a name is a text", remedy="give it in quotes")
    if not name:
        raise SpecError(field=field, value=None, limit="it is required", remedy="give the resource a name")
    if len(name) > MAX_NAME_LENGTH:
        raise SpecError(
            field=field,
            value=name,
            limit=f"its {len(name)} characters are more than {MAX_NAME_LENGTH}, and the names of pods and "
            "sets are made from it",
            remedy="choose a shorter name",
        )
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise SpecError(
            field=field,
            value=name,
            limit="it is the name of a Service: lower-case letters, digits and -, beginning with a letter",
            remedy="choose such a name",
        )
    if name == RESERVED_NAME or name.startswith(f"{RESERVED_NAME}-"):
        raise SpecError(
            field=field,
            value=name,
            limit="a Service of that name gives other pods variables that vLLM reads as its own settings",
            remedy=f"choose a name that does not begin with {RESERVED_NAME}",
        )
    if re.search(RANKS_PATTERN, name):
        raise SpecError(
            field=field,
            value=name,
            limit="another resource's group has a Service of that name",
            remedy="choose a name that does not end in a number and -ranks",
        )
    return name
