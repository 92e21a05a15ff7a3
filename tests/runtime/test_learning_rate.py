"""Learning rates as curves."""

import math

import pytest

from planner.runtime.learning_rate import learning_rates
from planner.runtime.options import RunOptions


def rates(tmp_path, num_steps, **settings):
    options = RunOptions(output_dir=tmp_path, lr=8.0, **settings)
    return list(learning_rates(options, num_steps))


def test_constant(tmp_path):
    assert rates(tmp_path, 3) == [8.0, 8.0, 8.0]


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_every_schedule_rises_from_0_in_the_warm_up(tmp_path, schedule):
    found = rates(tmp_path, 12, lr_schedule=schedule, warmup_steps=4)
    assert found[:5] == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_constant_stays_at_the_peak_after_the_warm_up(tmp_path):
    assert rates(tmp_path, 5, warmup_steps=2) == [0.0, 4.0, 8.0, 8.0, 8.0]


def test_linear_falls_towards_0(tmp_path):
    assert rates(tmp_path, 4, lr_schedule="linear") == [8.0, 6.0, 4.0, 2.0]


def test_cosine_is_half_way_down_in_the_middle(tmp_path):
    found = rates(tmp_path, 10, lr_schedule="cosine", warmup_steps=2)
    expected = [4 * (1 + math.cos(math.pi * step / 8)) for step in range(8)]
    assert found[2:] == pytest.approx(expected)


def test_a_rate_of_0_stays_0(tmp_path):
    options = RunOptions(output_dir=tmp_path, lr=0.0, warmup_steps=1)
    assert list(learning_rates(options, 3)) == [0.0, 0.0, 0.0]
