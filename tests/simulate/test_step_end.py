"""The end of a step, held against pictures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cards import Link
from planner.schedule.named import schedule_actions
from planner.simulate import (
    DeviceEnd,
    StageTimes,
    TieExchange,
    all_reduce_s,
    end_of_step,
    simulate,
)

seconds = st.floats(0, 10)


@given(
    ends_s=st.lists(seconds, min_size=1, max_size=5),
    optimizer_s=st.lists(seconds, min_size=5, max_size=5),
)
def test_alone_it_is_the_makespan_and_the_slowest_optimizer(ends_s, optimizer_s):
    devices = [DeviceEnd(optimizer_s=x) for x in optimizer_s[: len(ends_s)]]
    end = end_of_step(ends_s, devices)
    slowest_s = max(device.optimizer_s for device in devices)
    assert end.step_s == max(ends_s) + slowest_s
    assert end.gradients_s == tuple(ends_s)


def test_it_goes_on_from_a_timeline():
    times = [StageTimes(forward_s=1.0, backward_s=2.0)] * 2
    timeline = simulate(schedule_actions("1f1b", 2, 1), times)
    devices = [DeviceEnd(optimizer_s=0.5), DeviceEnd(optimizer_s=3.0)]
    assert end_of_step(timeline.device_ends_s, devices).step_s == 6.0 + 3.0


def test_a_tie_starts_when_all_of_its_holders_are_done():
    tie = TieExchange(devices=(0, 2), exchange_s=1.0)
    end = end_of_step([6.0, 9.0, 4.0], [DeviceEnd()] * 3, ties=[tie])
    assert end.gradients_s == (7.0, 9.0, 7.0)
    # Hidden behind device 1, which is not part of it.
    assert end.step_s == 9.0


def test_ties_of_one_device_follow_each_other():
    ties = [
        TieExchange(devices=(0, 1), exchange_s=1.0),
        TieExchange(devices=(1, 2), exchange_s=2.0),
    ]
    end = end_of_step([5.0, 4.0, 3.0], [DeviceEnd()] * 3, ties=ties)
    assert end.gradients_s == (6.0, 8.0, 8.0)


def test_a_tie_within_a_device_takes_nothing():
    tie = TieExchange(devices=(0, 0), exchange_s=1.0)
    assert end_of_step([5.0, 4.0], [DeviceEnd()] * 2, ties=[tie]).step_s == 5.0


def test_copies_are_reduced_device_by_device_and_the_norm_waits_for_all():
    devices = [
        DeviceEnd(reduce_s=1.0, optimizer_s=4.0),
        DeviceEnd(reduce_s=3.0, optimizer_s=1.0),
    ]
    end = end_of_step([6.0, 5.0], devices, agree_s=0.25)
    assert end.gradients_s == (7.0, 8.0)
    assert end.together_s == 8.25
    assert end.step_s == 12.25


@given(
    ends_s=st.lists(seconds, min_size=3, max_size=3),
    more_s=seconds,
    exchange_s=seconds,
)
def test_a_device_that_is_later_never_makes_a_step_shorter(ends_s, more_s, exchange_s):
    ties = [TieExchange(devices=(0, 2), exchange_s=exchange_s)]
    devices = [DeviceEnd(reduce_s=1.0, optimizer_s=1.0)] * 3
    later_s = [ends_s[0] + more_s, *ends_s[1:]]
    before, after = (
        end_of_step(x, devices, ties=ties).step_s for x in (ends_s, later_s)
    )
    assert after >= before


def test_a_ring_of_two_sends_a_tensor_once_each_way():
    link = Link(name="", bandwidth=100.0, latency_s=0.5)
    # Two pieces of half of it.
    assert all_reduce_s(1000, 2, link) == pytest.approx(2 * (0.5 + 5.0))


def test_a_longer_ring_sends_smaller_pieces():
    link = Link(name="", bandwidth=100.0, latency_s=0.0)
    assert all_reduce_s(1000, 4, link) == pytest.approx(2 * 3 / 4 * 10.0)
    assert all_reduce_s(1000, 1, link) == 0.0
