"""What is kept of a text that is too long."""

import pytest

from shardwright_operator.decide.failure import EVIDENCE_CHARACTERS, Failure
from shardwright_operator.observe.containers import ContainerExit
from shardwright_operator.observe.excerpt import head_and_tail
from shardwright_operator.observe.values import LONG_AGO


@pytest.mark.parametrize("length", [0, 99, 100, 101, 10_000])
def test_never_longer_than_asked_for(length: int) -> None:
    text = "x" * length
    cut = head_and_tail(text, 100)
    assert len(cut) <= 100
    assert (cut == text) is (length <= 100)


def test_both_ends_stay() -> None:
    assert head_and_tail("a" * 500 + "b" * 500, 68) == (
        "aaaaaaaaaa\n[... 980 characters left out ...]\nbbbbbbbbbb"
    )


def test_evidence_has_the_first_and_the_last_words_of_a_container() -> None:
    ended = ContainerExit(
        container="engine", exit_code=1, reason="Error", message="first words" + "." * 1500 + "last words"
    )
    failure = Failure(reason="Unknown", message="", node_rank=0, pod="", node="", exit=ended)  # type: ignore[arg-type]
    words = failure.evidence(LONG_AGO)["terminationMessage"]
    assert len(words) <= EVIDENCE_CHARACTERS
    assert (words[:11], words[-10:]) == ("first words", "last words")
