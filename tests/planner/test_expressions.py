"""Expressions of ignore lists: the same answers as Python's own matcher, without its worst case."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright_planner.expressions import MOST_LOOKS, UnknownExpressionError, compile_expression

PATHS = (
    "model.layers.0.self_attn.qkv_proj",
    "model.layers.12.self_attn.o_proj",
    "model.layers.12.mlp.gate",
    "model.layers.12.mlp.gate_up_proj",
    "model.layers.3.mlp.experts.down_proj",
    "model.layers.41.mlp.shared_experts.down_proj",
    "lm_head",
    "",
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(r".*self_attn.*", id="as checkpoints write them"),
        pytest.param(r".*mlp\.(gate|up|gate_up|down)_proj.*", id="alternatives"),
        pytest.param(r".*mlp.gate$", id="the end"),
        pytest.param(r"^model\.layers\.(0|1|2)\.", id="the start"),
        pytest.param(r"model\.layers\.\d{2}\.", id="two digits"),
        pytest.param(r"model\.layers\.[1-4]?\d\.(?!mlp)", id="what does not follow"),
        pytest.param(r"^(?!.*experts).*", id="what is nowhere"),
        pytest.param(r"(?=.*shared)model", id="what is somewhere"),
        pytest.param(r"(?:.*?)(?P<name>gate)", id="names and reluctance"),
        pytest.param(r".*[^_]proj|lm_.{2,}", id="a class and a bound"),
        pytest.param(r"x{,3}model(\.layers){0,1}\.", id="bounds that may be nothing"),
        pytest.param(r"a{b}|{}", id="braces that are characters"),
        pytest.param(r"[]]|[^]]+p", id="a bracket in a class"),
        pytest.param(r"(?:)*(l?)*m|(?:){3}lm_head|", id="repetitions of nothing"),
    ],
)
def test_it_answers_what_python_answers(text):
    found = compile_expression(text)
    assert [found.match(path) for path in PATHS] == [bool(re.match(text, path)) for path in PATHS]


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\.", "", "$", "^"])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "{2}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda text: f"(?!{text})"),
        inner.map(lambda text: f"(?={text})"),
    ),
    max_leaves=8,
).filter(lambda text: text.count("(?=") + text.count("(?!") <= MOST_LOOKS)


@given(EXPRESSIONS, st.text(alphabet="ab.", max_size=8))
def test_no_expression_answers_otherwise_than_python(text, path):
    assert compile_expression(text).match(path) is bool(re.match(text, path))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(r"(.*)*(.*)*(.*)*(.*)*x$", id="repetitions of repetitions"),
        pytest.param(r"(a|a|[a-z._])*(.+)+(.+)+!", id="alternatives that are alike"),
        pytest.param(r".*(?=.*" * 4 + "!" + ")" * 4, id="looking ahead while looking ahead"),
    ],
)
def test_what_would_keep_python_busy_for_years_takes_no_time(text):
    found = compile_expression(text)
    started = time.process_time()
    assert not any(found.match(f"model.layers.{layer}.self_attn.qkv_proj") for layer in range(50))
    assert time.process_time() - started < 5.0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("(", "missing", id="no expression"),
        pytest.param(r"(a)\1", "is not known here", id="what was matched before"),
        pytest.param("(?<=a)b", "is not known here", id="looking back"),
        pytest.param("(?i)a", "is not known here", id="flags"),
        pytest.param(r"\bmlp", "is not known here", id="ends of words"),
        pytest.param("a++", "is not known here", id="possession"),
        pytest.param("a" * 1025, "more than 1024 characters", id="length"),
        pytest.param("(?:(?:a{250}){250}){250}", "more than 4096 states", id="copies of copies"),
        pytest.param("(?:" * 20 + "){256}" * 20, "more than 4096 states", id="copies of nothing"),
        pytest.param("a{257}", "more than 256 times", id="copies"),
        pytest.param("(?!a)" * 5, "ahead more than 4 times", id="looking ahead"),
        pytest.param("(" * 40 + ")" * 40, "more than 32 groups", id="depth"),
    ],
)
def test_what_is_not_known_is_refused_by_name(text, why):
    with pytest.raises(UnknownExpressionError, match=re.escape(why)):
        compile_expression(text)
