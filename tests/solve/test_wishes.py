"""Wishes as people write them."""

import pytest

from planner.errors import WishError
from planner.solve import Wishes, parse_layers_per_stage


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("4,3,3,3", (4, 3, 3, 3)),
        ("0-4,5-8,9-11,12", (5, 4, 3, 1)),
        (" 2 , 1 ", (2, 1)),
        ("0-0,1", (1, 1)),
    ],
)
def test_counts_and_ranges(text, counts):
    assert parse_layers_per_stage(text) == counts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be read"),
        ("4,x", "cannot be read"),
        ("1-2-3", "cannot be read"),
        ("0-4,6-8", "stage 1 is '6-8' but must begin at layer 5"),
        ("0-4,3-8", "must begin at layer 5"),
        ("1-4", "must begin at layer 0"),
        ("0-4,5-3", "must begin at layer 5"),
    ],
)
def test_what_cannot_be_read_is_named(text, words):
    with pytest.raises(WishError) as caught:
        parse_layers_per_stage(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"global_batch_size": 0}, "--global-batch-size 0: at least one"),
        ({"microbatch_size": -1}, "--microbatch-size -1: at least one"),
        ({"time_limit_s": -1.0}, "--time-limit -1: give seconds from 0"),
        ({"time_limit_s": float("nan")}, "--time-limit nan"),
    ],
)
def test_numbers_that_no_plan_can_have_are_refused(wish, words):
    with pytest.raises(WishError, match=words):
        Wishes(**wish)
