"""Any status fits its schema after the cut, and nothing that fits is changed."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shardwright_operator.api.status import MAX_GROUPS, ModelDeploymentStatus, cut_to_bounds


def condition(kind: str = "Ready", message: str = "fine") -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True",
        "observedGeneration": 3,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "GroupsReady",
        "message": message,
    }


def test_status_that_fits_is_unchanged() -> None:
    status = {
        "observedGeneration": 3,
        "conditions": [condition(), condition("Available")],
        "groups": [{"index": 0, "phase": "Ready", "nodes": ["a", "b"], "restarts": 0}],
        "ready": "1/1",
    }

    assert cut_to_bounds(status) == status


def test_long_texts_end_in_dots() -> None:
    cut = cut_to_bounds({"conditions": [condition(message="x" * 5000)]})

    message = cut["conditions"][0]["message"]
    assert len(message) == 1024
    assert message.endswith("xxx...")


def test_long_lists_lose_their_end() -> None:
    groups = [{"index": i, "phase": "Ready", "nodes": [f"n{n}" for n in range(70)]} for i in range(150)]

    cut = cut_to_bounds({"groups": groups})

    assert [g["index"] for g in cut["groups"]] == list(range(MAX_GROUPS))
    assert len(cut["groups"][0]["nodes"]) == 64


def test_one_item_per_key() -> None:
    cut = cut_to_bounds({"conditions": [condition(message="first"), condition(message="second")]})

    assert [c["message"] for c in cut["conditions"]] == ["first"]


def test_counts_that_a_pod_made_up_are_cut() -> None:
    told = {"bytesDownloaded": 10**17, "percent": -1, "failures": 2}

    cut = cut_to_bounds({"model": {"download": told}})

    assert cut["model"]["download"] == {"bytesDownloaded": 2**53, "percent": 0, "failures": 2}


texts = st.text(max_size=2000)
failures = st.fixed_dictionaries(
    {"time": texts, "reason": texts}, optional={"message": texts, "pod": texts, "terminationMessage": texts}
)
groups = st.fixed_dictionaries(
    {"index": st.integers(0, 999), "phase": texts},
    optional={
        "message": texts,
        "nodes": st.lists(texts, max_size=80),
        "revision": texts,
        "firstFailure": failures,
    },
)


@given(
    st.fixed_dictionaries(
        {"observedGeneration": st.integers(-1, 2**40)},
        optional={
            "groups": st.lists(groups, max_size=120),
            "selector": texts,
            "conditions": st.lists(st.builds(condition, texts, texts), max_size=40),
        },
    )
)
def test_every_status_fits_after_the_cut(status: dict[str, Any]) -> None:
    ModelDeploymentStatus.model_validate(cut_to_bounds(status))
