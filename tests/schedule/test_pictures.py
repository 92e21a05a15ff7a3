"""Every schedule as a staircase: F, I and W take one column, B takes two."""

import importlib
from inspect import cleandoc
from textwrap import indent

import pytest
from schedule_pictures import drawn


def test_gpipe_does_all_forwards_first():
    assert drawn("gpipe", 3, 3) == cleandoc("""
        F0 F1 F2 .. .. .. .. .. .. B0 B0 B1 B1 B2 B2
        .. F0 F1 F2 .. .. .. B0 B0 B1 B1 B2 B2 .. ..
        .. .. F0 F1 F2 B0 B0 B1 B1 B2 B2 .. .. .. ..
    """)


def test_1f1b_alternates_after_a_warm_up():
    assert drawn("1f1b", 3, 4) == cleandoc("""
        F0 F1 F2 .. .. .. .. B0 B0 F3 B1 B1 .. B2 B2 .. B3 B3
        .. F0 F1 .. .. B0 B0 F2 B1 B1 F3 B2 B2 .. B3 B3 .. ..
        .. .. F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 B3 B3 .. .. .. ..
    """)


def test_interleaved_1f1b_takes_rounds_through_the_stages_of_a_device():
    assert drawn("interleaved-1f1b", 2, 4, 3) == cleandoc("""
        0F0 0F1 2F0 2F1 4F0 4F1 0F2 ..  4B0 4B0 0F3 4B1 4B1 2F2 2B0 2B0 2F3 2B1 2B1 4F2
        ..  1F0 1F1 3F0 3F1 5F0 5B0 5B0 5F1 5B1 5B1 1F2 3B0 3B0 1F3 3B1 3B1 3F2 1B0 1B0

        0B0 0B0 4F3 0B1 0B1 ..  4B2 4B2 ..  4B3 4B3 2B2 2B2 2B3 2B3 0B2 0B2 0B3 0B3
        3F3 1B1 1B1 5F2 5B2 5B2 5F3 5B3 5B3 3B2 3B2 3B3 3B3 1B2 1B2 1B3 1B3 ..  ..
    """)


def test_interleaved_1f1b_has_one_round_if_microbatches_are_few():
    assert drawn("interleaved-1f1b", 3, 3) == cleandoc("""
        0F0 0F1 0F2 3F0 3F1 3F2 ..  ..  ..  ..  3B0 3B0 ..  3B1 3B1 ..  3B2 3B2 0B0 0B0
        ..  1F0 1F1 1F2 4F0 4F1 4F2 ..  4B0 4B0 ..  4B1 4B1 ..  4B2 4B2 1B0 1B0 1B1 1B1
        ..  ..  2F0 2F1 2F2 5F0 5B0 5B0 5F1 5B1 5B1 5F2 5B2 5B2 2B0 2B0 2B1 2B1 2B2 2B2

        0B1 0B1 0B2 0B2
        1B2 1B2 ..  ..
        ..  ..  ..  ..
    """)


def test_looped_bfs_takes_all_microbatches_through_stage_by_stage():
    assert drawn("looped-bfs", 2, 3) == cleandoc("""
        0F0 0F1 0F2 2F0 2F1 2F2 ..  ..  ..  2B2 2B2 2B1 2B1 2B0 2B0 0B2 0B2 0B1 0B1 0B0
        ..  1F0 1F1 1F2 3F0 3F1 3F2 3B2 3B2 3B1 3B1 3B0 3B0 1B2 1B2 1B1 1B1 1B0 1B0 ..

        0B0
        ..
    """)


def test_zb_h1_fills_the_cool_down_with_w():
    assert drawn("zb-h1", 4, 5) == cleandoc("""
        F0 F1 F2 F3 .. .. .. I0 W0 F4 I1 W1 I2 W2 I3 W3 I4 W4
        .. F0 F1 F2 .. .. I0 F3 I1 W0 F4 I2 W1 I3 W2 I4 W3 W4
        .. .. F0 F1 .. I0 F2 I1 F3 I2 W0 F4 I3 W1 I4 W2 W3 W4
        .. .. .. F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 W2 W3 W4
    """)


def test_interleaved_zero_bubble_has_a_shorter_fill():
    assert drawn("interleaved-zb", 3, 3) == cleandoc("""
        0F0 0F1 0F2 3F0 3F1 3F2 ..  ..  3I0 3W0 3I1 3W1 3I2 3W2 0I0 0W0 0I1 0W1 0I2 0W2
        ..  1F0 1F1 1F2 4F0 4F1 ..  4I0 4F2 4I1 4W0 4I2 4W1 1I0 4W2 1I1 1W0 1I2 1W1 1W2
        ..  ..  2F0 2F1 2F2 5F0 5I0 5F1 5I1 5F2 5I2 5W0 2I0 5W1 2I1 5W2 2I2 2W0 2W1 2W2
    """)


def test_zb_v_starts_its_backwards_on_the_last_device():
    assert drawn("zb-v", 3, 5) == cleandoc("""
        0F0 0F1 0F2 0F3 0F4 5F0 5I0 5W0 5F1 5I1 5W1 5F2 5I2 5W2 0I0 0W0 5F3 5I3 5W3 0I1
        ..  1F0 1F1 1F2 4F0 1F3 4F1 4I0 4W0 4F2 4I1 4W1 1F4 1I0 1W0 4F3 4I2 4W2 1I1 1W1
        ..  ..  2F0 3F0 2F1 3F1 2F2 3F2 3I0 3W0 2F3 2I0 2W0 3F3 3I1 3W1 2F4 2I1 2W1 3F4

        0W1 5F4 5I4 5W4 0I2 0W2 0I3 0W3 0I4 0W4 ..  ..
        4F4 4I3 4W3 1I2 4I4 1I3 1W2 1I4 1W3 4W4 1W4 ..
        3I2 3W2 2I2 3I3 2I3 3I4 2I4 2W2 3W3 3W4 2W3 2W4
    """)


def test_zb_v_leaves_places_empty_if_microbatches_are_few():
    assert drawn("zb-v", 3, 2) == cleandoc("""
        0F0 0F1 ..  ..  ..  5F0 5I0 5W0 5F1 5I1 5W1 ..  ..  0I0 0W0 ..  0I1 0W1
        ..  1F0 1F1 ..  4F0 ..  4F1 4I0 4W0 ..  4I1 4W1 1I0 1W0 ..  1I1 1W1 ..
        ..  ..  2F0 3F0 2F1 3F1 ..  ..  3I0 3W0 2I0 2W0 3I1 3W1 2I1 2W1 ..  ..
    """)


def test_dualpipe_v_pairs_forwards_with_backwards():
    assert drawn("dualpipe-v", 3, 6) == cleandoc("""
        0F0 0F1 0F2 0F3 0F4 5F0 5I0 5W0 5F1 5I1 5W1 5F2 0F5 5B2 5B2 5F3 0B0 0B0 5B3 5B3
        ..  1F0 1F1 1F2 4F0 1F3 4F1 4I0 4W0 4F2 1F4 4B1 4B1 4F3 1B0 1B0 1F5 4B2 4B2 4F4
        ..  ..  2F0 3F0 2F1 3F1 2F2 3F2 2F3 3B0 3B0 3F3 2B0 2B0 2F4 3B1 3B1 3F4 2B1 2B1

        5F4 ..  0B1 0B1 5B4 5B4 5F5 ..  0B2 0B2 5B5 5B5 0I3 0W3 0I4 0W4 0I5 0W5
        1B1 1B1 4B3 4B3 4F5 ..  1B2 1B2 4B4 4B4 1B3 1B3 4I5 1I4 4W5 1I5 1W4 1W5
        2F5 3B2 3B2 3F5 2B2 2B2 3B3 3B3 2B3 2B3 3B4 3B4 2I4 3I5 2I5 2W4 3W5 2W5
    """)


@pytest.mark.parametrize(
    ("module", "counts"),
    [
        ("gpipe", ("gpipe", 2, 3)),
        ("one_forward_one_backward", ("1f1b", 2, 3)),
        ("interleaved_1f1b", ("interleaved-1f1b", 2, 2)),
        ("looped_bfs", ("looped-bfs", 2, 2)),
        ("zero_bubble", ("zb-h1", 3, 4)),
        ("zero_bubble", ("interleaved-zb", 2, 2)),
        ("zb_v", ("zb-v", 2, 3)),
        ("dualpipe_v", ("dualpipe-v", 2, 4)),
    ],
)
def test_the_picture_in_the_documentation_is_that_of_the_code(module, counts):
    text = importlib.import_module(f"planner.schedule.{module}").__doc__
    assert indent(drawn(*counts), "    ") in text
