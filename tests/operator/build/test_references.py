"""What pods name that must be there, and the Job's name by it."""

from collections.abc import Callable
from typing import Any

import pytest

from shardwright_operator.build.owner import Owner
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.build.references import check_name, reference_check, references
from shardwright_operator.build.revision import Revision
from shardwright_planner.plan import Plan

MODEL = {"name": "meta-llama/Llama-3.1-405B-Instruct"}
HUB = {"source": {"huggingFace": {"tokenSecretRef": {"name": "hub"}}}}
TOKEN = {"secretKeyRef": {"name": "hub", "key": "token"}}


def variable(**source: Any) -> dict[str, Any]:
    return {"name": "MINE", "valueFrom": source}


@pytest.fixture
def revision_of(
    owner: Owner, pool: PoolSelection, two_nodes: Plan, make_revision: Callable[..., Revision]
) -> Callable[..., Revision]:
    def revision(model: dict[str, Any] | None = None, **engine: Any) -> Revision:
        return make_revision({"model": {**MODEL, **(model or {})}, "engine": engine}, two_nodes, owner, pool)

    return revision


@pytest.mark.parametrize(
    ("model", "engine", "found"),
    [
        pytest.param({}, {}, [], id="nothing: the launcher's own ConfigMap does not count"),
        pytest.param(HUB, {}, [TOKEN], id="the Hub's token, which every rank names, once"),
        pytest.param(
            {},
            {"apiKeySecretRef": {"name": "door", "key": "api"}},
            [{"secretKeyRef": {"name": "door", "key": "api"}}],
            id="the API key, which only the leader names",
        ),
        pytest.param(
            {},
            {"env": [variable(configMapKeyRef={"name": "tuning", "key": "level"})]},
            [{"configMapKeyRef": {"name": "tuning", "key": "level"}}],
            id="a ConfigMap in the user's environment",
        ),
        pytest.param(
            {},
            {"env": [variable(secretKeyRef={"name": "maybe", "key": "a", "optional": True})]},
            [],
            id="what is optional does not count",
        ),
        pytest.param(
            {"chatTemplateRef": {"name": "templates", "key": "llama.jinja"}},
            {},
            [{"configMapKeyRef": {"name": "templates", "key": "llama.jinja"}}],
            id="the chat template's volume",
        ),
    ],
)
def test_what_pods_name(
    *,
    model: dict[str, Any],
    engine: dict[str, Any],
    found: list[dict[str, Any]],
    owner: Owner,
    revision_of: Callable[..., Revision],
) -> None:
    revision = revision_of(model, **engine)
    assert references(revision) == found
    assert (reference_check(owner, revision, "shardwright:1") is None) == (not found)


def test_name_is_by_what_is_named(owner: Owner, revision_of: Callable[..., Revision]) -> None:
    """A newer image of the operator, or of the engine, must not ask again."""
    name = check_name(owner, revision_of(HUB))
    first = reference_check(owner, revision_of(HUB), "shardwright:1")
    second = reference_check(owner, revision_of(HUB, image="mirror/vllm:v0.32.0"), "shardwright:2")

    assert first is not None
    assert second is not None
    assert [job["metadata"]["name"] for job in (first, second)] == [name, name]
    assert check_name(owner, revision_of(HUB, apiKeySecretRef={"name": "a", "key": "b"})) != name
    assert len(f"{'x' * 40}{name.removeprefix(owner.name)}") <= 63
