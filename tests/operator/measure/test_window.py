"""Means over the last minutes, and when there are none."""

from shardwright_operator.measure_text import Mean, Sample
from shardwright_operator.measure_window import Window
from shardwright_operator.observe.measurement import Load


def look(requests: float, *, tpot_s: float = 0.05, running: float = 8.0, preemptions: float = 0.0) -> Sample:
    return Sample(
        running=running,
        preemptions=preemptions,
        time_per_output_token_s=Mean(total=requests * tpot_s, count=requests),
        time_to_first_token_s=Mean(total=requests * 0.2, count=requests),
        prompt_tokens=Mean(total=requests * 1000, count=requests),
    )


def test_nothing_before_a_window_has_passed() -> None:
    window = Window()
    assert [window.add(look(100 * n), 60.0 * n) for n in range(5)] == [None] * 5

    assert window.add(look(500, preemptions=3), 300.0) == Load(
        requests=500,
        running=8.0,
        input_tokens=1000.0,
        time_per_output_token_ms=50.0,
        time_to_first_token_ms=200.0,
        preemptions=3,
    )


def test_old_requests_do_not_count() -> None:
    window = Window()
    for n in range(11):
        # slow in the first five minutes, fast in the next
        total = min(n, 5) * 100 * 0.2 + max(0, n - 5) * 100 * 0.05
        sample = look(100 * n)
        found = window.add(
            Sample(
                running=sample.running,
                time_per_output_token_s=Mean(total=total, count=100.0 * n),
                time_to_first_token_s=sample.time_to_first_token_s,
                prompt_tokens=sample.prompt_tokens,
            ),
            60.0 * n,
        )
    assert found is not None
    assert found.time_per_output_token_ms == 50.0


def test_too_few_requests_are_no_load() -> None:
    window = Window()
    assert [window.add(look(n), 60.0 * n) for n in range(8)] == [None] * 8


def test_a_restarted_engine_begins_anew() -> None:
    window = Window()
    for n in range(6):
        window.add(look(100 * n), 60.0 * n)

    assert window.add(look(1), 360.0) is None
