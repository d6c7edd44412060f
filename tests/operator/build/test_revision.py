"""Revisions: named by content, read back whole, and never misread."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from shardwright_operator.build.owner import Owner
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.build.revision import Revision, RevisionError, from_manifest, named, to_manifest
from shardwright_planner.plan import Plan

MODEL = {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}}


@pytest.fixture
def revision(
    owner: Owner, pool: PoolSelection, two_nodes: Plan, make_revision: Callable[..., Revision]
) -> Revision:
    return named(make_revision(MODEL, two_nodes, owner, pool), owner)


def test_read_back_whole(revision: Revision, owner: Owner) -> None:
    assert from_manifest(to_manifest(revision, owner)) == revision


def test_group_of_one_pod_read_back_whole(
    owner: Owner, pool: PoolSelection, make_plan: Callable[..., Plan], make_revision: Callable[..., Revision]
) -> None:
    single = named(make_revision(MODEL, make_plan(), owner, pool), owner)
    assert from_manifest(to_manifest(single, owner)) == single


def test_number_is_not_content(revision: Revision, owner: Owner) -> None:
    """A rollback raises the number of the old revision, whose data is immutable."""
    assert named(replace(revision, number=7), owner).name == revision.name


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"image": "vllm/vllm-openai:v0.33.0"}, id="image"),
        pytest.param({"operator_version": "0.2.0"}, id="operator version, which data holds too"),
        pytest.param({"leader_template": {"spec": {}}}, id="template"),
    ],
)
def test_other_content_has_another_name(change: dict[str, object], revision: Revision, owner: Owner) -> None:
    assert named(replace(revision, **change), owner).name != revision.name  # type: ignore[arg-type]


def test_pods_hash_follows_pods_only(revision: Revision) -> None:
    assert replace(revision, operator_version="9", number=9, plan_inputs="x").pods_hash == revision.pods_hash
    assert replace(revision, worker_template=None).pods_hash != revision.pods_hash
    assert replace(revision, members=3).pods_hash != revision.pods_hash


def test_field_of_a_newer_plan_is_dropped(revision: Revision, owner: Owner) -> None:
    manifest = to_manifest(revision, owner)
    manifest["data"]["plan"] |= {"novelty": 1}
    assert from_manifest(manifest) == revision


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({}, id="empty"),
        pytest.param({"format": 2}, id="newer layout"),
        pytest.param({"format": 1, "plan": {}}, id="plan without sizes"),
    ],
)
def test_a_revision_that_cannot_be_read_is_named(
    data: dict[str, object], revision: Revision, owner: Owner
) -> None:
    with pytest.raises(RevisionError, match=revision.name):
        from_manifest({**to_manifest(revision, owner), "data": data})
