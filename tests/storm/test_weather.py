"""A storm can be had again from its seed, and lets the operator alone in its lulls."""

import pytest

from weather import FRONT_S, LULL_S, OPERATOR_AND_WAY, WORLD, Kind, forecast


def test_the_same_seed_gives_the_same_storm_and_a_longer_one_begins_alike() -> None:
    short, long = forecast(7, 60.0), forecast(7, 600.0)
    assert short == forecast(7, 60.0) == long[: len(short)]
    assert short != forecast(8, 60.0)


def test_a_long_storm_has_all_kinds_in_order_of_time_and_none_too_late() -> None:
    gusts = forecast(1, 3600.0)
    assert {gust.kind for gust in gusts} == set(Kind) == {*WORLD, *OPERATOR_AND_WAY}
    assert [gust.at_s for gust in gusts] == sorted(gust.at_s for gust in gusts)
    assert gusts[-1].at_s <= 3600.0


@pytest.mark.parametrize("seed", range(5))
def test_in_a_lull_nothing_befalls_the_operator(seed: int) -> None:
    struck = [gust for gust in forecast(seed, 1000.0) if gust.kind in OPERATOR_AND_WAY]
    assert struck
    assert max(gust.at_s % (FRONT_S + LULL_S) for gust in struck) <= FRONT_S + 0.1
