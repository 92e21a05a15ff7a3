"""How many microbatches a device holds while something runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.schedule.actions import parse_actions
from planner.schedule.named import schedule_actions
from planner.solve.moments import Moment, fullest_moments


@given(num_devices=st.integers(1, 5), num_microbatches=st.integers(1, 8))
def test_one_stage_a_device_has_one_fullest_moment(num_devices, num_microbatches):
    for name in ("gpipe", "1f1b"):
        actions = schedule_actions(name, num_devices, num_microbatches)
        for stage, row in enumerate(actions):
            held = num_microbatches
            if name == "1f1b":
                held = min(num_devices - stage, num_microbatches)
            assert fullest_moments(row, (stage,)) == (Moment(0, (held - 1,)),)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        # While stage 1 runs, stage 0 holds two; while stage 0 runs, stage 1 none.
        ("0F0 0F1 1F0 1B0 0B0 0B1", {(0, (1, 0)), (1, (2, 0))}),
        # I keeps what W needs.
        ("0F0 0I0 0F1 0W0 0B1", {(0, (1, 0))}),
        # Neither moment of stage 0 covers the other.
        (
            "0F0 0F1 0B0 0B1 1F0 1F1 0F2 0B2 1B0 1B1",
            {
                (0, (1, 0)),
                (0, (0, 2)),
                (1, (0, 1)),
            },
        ),
    ],
)
def test_moments_that_hold_less_are_left_out(row, expected):
    (row,) = parse_actions((tuple(row.split()),))
    assert set(fullest_moments(row, (0, 1))) == expected
