"""Named schedules as pictures and closed forms."""

import pytest

from planner.errors import WishError
from planner.schedule.actions import format_actions, parse_actions
from planner.schedule.named import (
    SCHEDULES,
    num_in_flight,
    num_microbatches_of,
    schedule_actions,
)
from planner.schedule.validate import validate_actions


def picture(name, num_stages, num_microbatches):
    actions = schedule_actions(name, num_stages, num_microbatches)
    return [" ".join(row) for row in format_actions(actions)]


def test_gpipe_does_all_forwards_first():
    assert picture("gpipe", 2, 3) == [
        "0F0 0F1 0F2 0B0 0B1 0B2",
        "1F0 1F1 1F2 1B0 1B1 1B2",
    ]


def test_1f1b_alternates_after_a_warm_up():
    assert picture("1f1b", 3, 4) == [
        "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3",
        "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3",
        "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3",
    ]


def test_1f1b_works_with_fewer_microbatches_than_stages():
    assert picture("1f1b", 4, 2) == [
        "0F0 0F1 0B0 0B1",
        "1F0 1F1 1B0 1B1",
        "2F0 2F1 2B0 2B1",
        "3F0 3B0 3F1 3B1",
    ]


@pytest.mark.parametrize("num_stages", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("num_microbatches", [1, 2, 3, 8])
def test_in_flight_equals_the_closed_form(num_stages, num_microbatches):
    gpipe = schedule_actions("gpipe", num_stages, num_microbatches)
    one = schedule_actions("1f1b", num_stages, num_microbatches)
    for stage in range(num_stages):
        assert num_in_flight(gpipe, stage) == num_microbatches
        assert num_in_flight(one, stage) == min(num_stages - stage, num_microbatches)


def test_a_microbatch_is_in_flight_until_its_weight_gradient():
    actions = parse_actions((("0F0", "0I0", "0F1", "0W0", "0I1", "0W1"),))
    assert num_in_flight(actions, 0) == 2


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("num_stages", [1, 2, 4, 7])
@pytest.mark.parametrize("num_microbatches", [1, 2, 4, 9])
def test_every_named_schedule_is_valid(name, num_stages, num_microbatches):
    actions = schedule_actions(name, num_stages, num_microbatches)
    validate_actions(actions, num_stages=num_stages, num_microbatches=num_microbatches)
    assert num_microbatches_of(actions) == num_microbatches


def test_an_unknown_schedule_is_refused_with_the_known_ones():
    with pytest.raises(WishError, match="'zigzag'; there are 1f1b, gpipe"):
        schedule_actions("zigzag", 2, 2)


def test_a_schedule_without_microbatches_is_refused():
    with pytest.raises(ValueError, match="2 stages and 0 microbatches"):
        schedule_actions("1f1b", 2, 0)
