"""Durations and quantities: what is read, what is refused, and the one way in which each is written."""

import pytest

from shardwright_operator.api.quantities import (
    canonical_quantity,
    format_bytes,
    format_duration,
    parse_duration_s,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("150ms", 0.15, id="milliseconds"),
        pytest.param("2.5s", 2.5, id="fraction of a second"),
        pytest.param("1m30s", 90.0, id="minutes and seconds"),
        pytest.param("1h0m1s", 3601.0, id="hours"),
        pytest.param("1m1ms", 60.001, id="m before ms is minutes"),
    ],
)
def test_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "150", "ms", "-1s", "1.s", "1d", "1s ", "1s\n", "1 s", "1us", "soon"])
def test_junk_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_s(text)


@pytest.mark.parametrize("text", ["0s", "150ms", "2.5s", "1m30s", "1h", "1h1m1s", "10m", "24h"])
def test_duration_is_written_as_it_was_read(text: str) -> None:
    assert format_duration(parse_duration_s(text)) == text


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        pytest.param("80Gi", 80 * 2**30, id="binary"),
        pytest.param("1.5G", 1_500_000_000, id="decimal fraction"),
        pytest.param("1k", 1000, id="kilo"),
        pytest.param("1500m", 2, id="milli is rounded up"),
        pytest.param(4096, 4096, id="number"),
        pytest.param("1Ei", 2**60, id="largest unit"),
    ],
)
def test_quantity_is_read(text: str | int, amount: int) -> None:
    assert parse_quantity(text) == amount


@pytest.mark.parametrize("text", ["", "80 Gi", "80GB", "-1Gi", "1e3", "Gi", "1.", "0x10", "lots"])
def test_junk_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("given", "written"),
    [
        pytest.param("1024Mi", "1Gi", id="larger binary unit"),
        pytest.param("1.5Gi", "1536Mi", id="binary fraction"),
        pytest.param("1000m", "1", id="milli to whole"),
        pytest.param("1500m", "1500m", id="milli stays"),
        pytest.param("0.5", "500m", id="fraction to milli"),
        pytest.param("2000M", "2G", id="larger decimal unit"),
        pytest.param("8", "8", id="count"),
        pytest.param("8000", "8k", id="thousands"),
        pytest.param("0", "0", id="nothing"),
    ],
)
def test_quantity_has_one_spelling(given: str, written: str) -> None:
    assert canonical_quantity(given) == written
    assert canonical_quantity(written) == written


def test_bytes_have_the_largest_unit_that_divides_them() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1024, 3 * 2**30, 2**40)] == ["0", "1023", "1Ki", "3Gi", "1Ti"]
