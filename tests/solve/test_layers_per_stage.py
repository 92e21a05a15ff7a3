from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import WishError
from planner.solve.wishes import parse_layers_per_stage


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("4,5,3,1", (4, 5, 3, 1)),
        ("0-3,4-8,9-11,12", (4, 5, 3, 1)),
        ("0-3, 4-8, 9-11, 12", (4, 5, 3, 1)),
        ("13", (13,)),
        ("0-12", (13,)),
        ("0,1-12", (1, 12)),
    ],
)
def test_a_cut_is_written_as_counts_or_as_ranges(text, counts):
    assert parse_layers_per_stage(text) == counts


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_both_ways_of_writing_mean_the_same(counts):
    ends = [*accumulate(counts)]
    ranges = ",".join(
        f"{end - count}-{end - 1}" for count, end in zip(counts, ends, strict=True)
    )
    as_counts = ",".join(map(str, counts))
    assert parse_layers_per_stage(ranges) == tuple(counts)
    assert parse_layers_per_stage(as_counts) == tuple(counts)


@pytest.mark.parametrize("text", ["", "4,,9", "a,b", "-1,14", "0-5,x", "1-2-3", "4 5"])
def test_what_is_no_cut_is_refused_with_examples(text):
    with pytest.raises(WishError, match="cannot be read; write counts such as"):
        parse_layers_per_stage(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-3,5-12", "stage 1 is '5-12' but must begin at layer 4"),
        ("0-3,3-12", "stage 1 is '3-12' but must begin at layer 4"),
        ("1-12", "stage 0 is '1-12' but must begin at layer 0"),
        ("0-4,4-3,5-12", "stage 1 is '4-3' but must begin at layer 5"),
    ],
)
def test_ranges_that_miss_or_repeat_a_layer_are_refused(text, message):
    with pytest.raises(WishError, match=message):
        parse_layers_per_stage(text)
