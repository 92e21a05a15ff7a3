import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import WishError
from planner.units import (
    GIB,
    MIB,
    format_bytes,
    format_count,
    format_figure,
    format_percent,
    format_seconds,
    parse_bytes,
    parse_count,
)


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("24GiB", 24 * 1024**3),
        ("24GB", 24 * 10**9),
        ("24gib", 24 * 1024**3),
        (" 1.5 GiB ", 3 * GIB // 2),
        (".5MiB", MIB // 2),
        ("25769803776", 24 * GIB),
        ("0", 0),
        ("7 B", 7),
    ],
)
def test_sizes_are_read_with_binary_or_decimal_units(text, num_bytes):
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize(
    "text", ["", "GiB", "24G", "-1GiB", "24GiBs", "1e9", "nan", "inf", "2 4GiB", "٣ß"]
)
def test_what_is_no_size_is_refused_with_an_example(text):
    with pytest.raises(WishError, match="is not a size; write for example 24GiB"):
        parse_bytes(text)


@given(st.integers(0, 2**50))
def test_plain_bytes_read_back_exactly(num_bytes):
    assert parse_bytes(str(num_bytes)) == num_bytes


@given(st.integers(0, 2**43))
def test_a_written_size_reads_back_within_its_three_digits(num_bytes):
    assert parse_bytes(format_bytes(num_bytes)) == pytest.approx(num_bytes, rel=0.006)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (format_bytes(21.4 * GIB), "21.4 GiB"),
        (format_bytes(512 * MIB), "512 MiB"),
        (format_bytes(96), "96 B"),
        (format_bytes(-2 * GIB), "-2.00 GiB"),
        (format_seconds(1.52), "1.52 s"),
        (format_seconds(0.0241), "24.1 ms"),
        (format_seconds(130e-6), "130 us"),
        (format_seconds(0.0), "0 s"),
        (format_count(6_738_000_000), "6.74 B"),
        (format_count(134_515_008), "135 M"),
        (format_count(512), "512"),
        (format_percent(3 / 11), "27.3 %"),
    ],
)
def test_numbers_are_written_with_the_unit_that_suits_them(written, expected):
    assert written == expected


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (1e-6, "<0.01"), (0.25, "0.25"), (12.345, "12.3"), (1234.5, "1234")],
)
def test_figures_without_a_unit(number, text):
    assert format_figure(number) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1B", 10**9),
        ("300m", 300_000_000),
        ("1.5T", 1_500_000_000_000),
        ("20000", 20_000),
    ],
)
def test_a_count_is_read_with_its_unit(text, expected):
    assert parse_count(text) == expected


@pytest.mark.parametrize("text", ["", "B", "-1B", "0", "1GiB", "many"])
def test_what_is_no_count_is_refused(text):
    with pytest.raises(WishError, match="is not a count"):
        parse_count(text)
