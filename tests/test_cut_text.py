from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cut_text import parse_layers_per_stage
from planner.errors import WishError


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
    assert parse_layers_per_stage(text, 13) == counts


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_both_ways_of_writing_mean_the_same(counts):
    ends = [*accumulate(counts)]
    ranges = ",".join(
        f"{end - count}-{end - 1}" for count, end in zip(counts, ends, strict=True)
    )
    as_counts = ",".join(map(str, counts))
    assert parse_layers_per_stage(ranges, ends[-1]) == tuple(counts)
    assert parse_layers_per_stage(as_counts, ends[-1]) == tuple(counts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4,3,3", "adds up to 10 layers but the model has 13"),
        ("4,4,4,4", "adds up to 16 layers but the model has 13"),
        ("13,0", "stage 1 of '13,0' has no layer"),
        ("", "is no cut"),
        ("4,,9", "is no cut"),
        ("a,b", "is no cut"),
        ("-1,14", "is no cut"),
        ("0-3,5-12", "stage 1 .* is 5-12 but should begin at layer 4"),
        ("0-3,3-12", "stage 1 .* is 3-12 but should begin at layer 4"),
        ("1-12", "stage 0 .* should begin at layer 0"),
        ("0-4,4-3,5-12", "stage 1 .* is 4-3 but should begin at layer 5"),
        ("0-5,6-11", "ends at layer 11 but the last layer of the model is 12"),
        ("0-5,6-13", "ends at layer 13 but the last layer of the model is 12"),
        ("0-5,x", "'x' in '0-5,x' is no range"),
    ],
)
def test_a_cut_that_misses_or_repeats_a_layer_is_refused(text, message):
    with pytest.raises(WishError, match=message):
        parse_layers_per_stage(text, 13)
