"""Whatever stands in a spec, the answer is records or one sentence: never another exception."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from full_spec import FULL_SPEC
from shardwright_operator.api.errors import SpecError, from_planner
from shardwright_operator.api.manifest import parse_manifest
from shardwright_operator.api.plan_request import declared_pool, plan_request
from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_planner import PlanInputError, plan

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=True)
    | st.text(max_size=40)
    | st.sampled_from(["-1s", "0s", "1Gi", "--tensor-parallel-size=2", "1e999", "\n", "\x00", "../x"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


def _places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The path of every value in the spec."""
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [path, *(place for key, child in children for place in _places(child, (*path, key)))]


PLANNED = {
    **FULL_SPEC,
    "model": {"name": "meta-llama/Llama-3.1-70B", "dtype": "bfloat16", "kvCacheDtype": "fp8_e4m3"},
}
PLACES = [place for place in _places(PLANNED) if place]


def _answer(raw: object) -> str:
    try:
        spec = parse_spec(raw)
        pool = declared_pool(spec)
        request = plan_request(spec, () if pool is None else (pool,))
    except SpecError as error:
        text = str(error)
        assert "\n" not in text
        assert len(text) < 2000
        return text
    if request.pools:
        try:
            plan(request)
        except PlanInputError as error:
            return str(from_planner(error))
    return ""


@given(json_values)
def test_any_document_is_taken_or_refused_in_words(document: Any) -> None:
    try:
        parse_manifest(document)
    except SpecError:
        return


@given(st.dictionaries(st.sampled_from(sorted(FULL_SPEC)), json_values, max_size=6))
def test_any_value_in_any_section(raw: dict[str, Any]) -> None:
    _answer({"model": PLANNED["model"], **raw})


@given(st.sampled_from(PLACES), json_values)
def test_any_value_in_any_place_of_a_full_spec(place: tuple[str | int, ...], value: Any) -> None:
    raw: dict[str, Any] = copy.deepcopy(PLANNED)
    target: Any = raw
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value

    text = _answer(raw)

    # A refusal of this one change is about this place or about what it has to agree with.
    assert not text or text.startswith(("spec.", "spec is"))
