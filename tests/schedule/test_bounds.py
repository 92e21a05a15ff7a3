"""What every named schedule needs and leaves empty, in closed forms.

p devices, m microbatches, v stages a device; memory counts the activations of one
stage for one microbatch, of which a whole device has v.
"""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from schedule_pictures import simulated

from planner.schedule.named import (
    SCHEDULES,
    num_in_flight,
    num_microbatches_of,
    schedule_actions,
)
from planner.schedule.placement import device_of_stage, stages_of_device
from planner.schedule.rounds import round_size
from planner.schedule.validate import validate_actions

HELD = {
    "gpipe": lambda p, m, v, d: m,
    "1f1b": lambda p, m, v, d: min(p - d, m),
    "interleaved-1f1b": lambda p, m, v, d: min(
        (v - 1) * round_size(p, m) + 2 * (p - 1 - d) + 1, v * m
    ),
    "looped-bfs": lambda p, m, v, d: v * m,
    "zb-h1": lambda p, m, v, d: min(p, m),
    "interleaved-zb": lambda p, m, v, d: min((v - 1) * round_size(p, m) + p, v * m),
    "dualpipe-v": lambda p, m, v, d: 2 * p + 1,
}
# 4 devices, 8 microbatches, B = I + W. Per device: microbatches held at most.
TABLE = {
    # name: (bubble if F, I, W = 1, 1, 1; 1, 1.4, 0.6; 1, 2.4, 0.6 [%], held)
    "gpipe": (27.3, 27.3, 27.3, [8, 8, 8, 8]),
    "1f1b": (27.3, 27.3, 27.3, [4, 3, 2, 1]),
    "zb-h1": (11.1, 18.4, 20.8, [4, 4, 4, 4]),
    "interleaved-1f1b": (15.8, 15.8, 15.8, [5.5, 4.5, 3.5, 2.5]),
    "looped-bfs": (15.8, 15.8, 15.8, [8, 8, 8, 8]),
    "interleaved-zb": (5.9, 10.1, 11.6, [4, 4, 4, 4]),
    "zb-v": (5.9, 9.1, 14.4, [4, 4, 4, 4]),
    "dualpipe-v": (5.9, 10.4, 15.3, [4.5, 4.5, 4.5, 4.5]),
}


def held_on_device(actions, device):
    """Activations of one stage and microbatch that a device holds at most."""
    held = most = 0
    for action in actions[device]:
        held += {"F": 1, "B": -1, "I": 0, "W": -1}[action.kind]
        most = max(most, held)
    return most


@st.composite
def possible_counts(draw, names=tuple(SCHEDULES)):
    """A name and numbers of devices, microbatches and stages a device."""
    schedule = SCHEDULES[draw(st.sampled_from(names))]
    least = schedule.min_stages_per_device
    counts = (
        draw(st.integers(1, 7)),
        draw(st.integers(1, 24)),
        draw(st.integers(least, schedule.max_stages_per_device or 4)),
    )
    assume(not schedule.problem(*counts))
    return schedule.name, *counts


@given(possible_counts())
def test_every_schedule_is_valid_and_where_it_says(counts):
    name, num_devices, num_microbatches, stages_per_device = counts
    schedule, actions = SCHEDULES[name], schedule_actions(*counts)
    validate_actions(
        actions,
        num_stages=num_devices * stages_per_device,
        num_microbatches=num_microbatches,
    )
    assert num_microbatches_of(actions) == num_microbatches
    placement = schedule.placement, num_devices, stages_per_device
    home = device_of_stage(*placement)
    for device, row in enumerate(actions):
        assert {home[action.stage] for action in row} == {device}
        assert tuple(sorted({a.stage for a in row})) == stages_of_device(
            *placement, device
        )
    if not schedule.splits_backward:
        assert {action.kind for row in actions for action in row} == {"F", "B"}


@given(possible_counts(names=tuple(HELD)))
def test_a_device_holds_as_much_as_the_closed_form(counts):
    name, num_devices, num_microbatches, v = counts
    actions = schedule_actions(*counts)
    for device in range(num_devices):
        closed_form = HELD[name](num_devices, num_microbatches, v, device)
        assert held_on_device(actions, device) == closed_form


@given(num_devices=st.integers(1, 7), num_microbatches=st.integers(1, 24))
def test_zb_v_never_holds_more_than_a_microbatch_for_each_device(
    num_devices, num_microbatches
):
    actions = schedule_actions("zb-v", num_devices, num_microbatches)
    held = [held_on_device(actions, device) for device in range(num_devices)]
    assert max(held) == 2 * min(num_devices, num_microbatches)
    if num_microbatches >= 2 * num_devices - 1:
        assert held == [2 * num_devices] * num_devices


def test_the_first_device_of_interleaved_1f1b_holds_what_the_paper_says():
    for p, v in [(2, 2), (4, 2), (4, 3), (6, 4)]:
        held = held_on_device(schedule_actions("interleaved-1f1b", p, 3 * p, v), 0)
        assert held / v == pytest.approx(p * (1 + (p - 1) / (p * v)))


def test_under_zb_h1_the_last_stage_holds_as_many_as_there_are_devices():
    actions = schedule_actions("zb-h1", 4, 8)
    assert [num_in_flight(actions, stage) for stage in range(4)] == [4, 4, 4, 4]


@pytest.mark.parametrize("name", TABLE)
def test_four_devices_and_eight_microbatches(name):
    *bubbles, held = TABLE[name]
    actions = schedule_actions(name, 4, 8)
    v = SCHEDULES[name].min_stages_per_device
    assert [held_on_device(actions, device) / v for device in range(4)] == held
    for percent, (input_s, weight_s) in zip(
        bubbles, [(1.0, 1.0), (1.4, 0.6), (2.4, 0.6)], strict=True
    ):
        timeline = simulated(actions, 4 * v, input_s=input_s, weight_s=weight_s)
        assert 100 * timeline.bubble_fraction == pytest.approx(percent, abs=0.05)


@given(
    possible_counts(names=("gpipe", "1f1b", "interleaved-1f1b", "looped-bfs")),
    st.floats(0.5, 3.0),
)
@settings(max_examples=50)
def test_whole_backwards_leave_one_fill_of_a_stage(counts, input_s):
    _, p, m, v = counts
    assume(m % p == 0)
    timeline = simulated(schedule_actions(*counts), p * v, input_s=input_s)
    assert timeline.bubble_fraction == pytest.approx((p - 1) / (v * m + p - 1))


@given(
    possible_counts(names=("zb-h1", "interleaved-zb")),
    st.floats(1.0, 3.0),
    st.floats(0.1, 1.0),
)
@settings(max_examples=50)
def test_zero_bubble_fills_all_but_f_and_i_less_w(counts, input_s, weight_s):
    _, p, m, v = counts
    assume(m >= p)
    actions = schedule_actions(*counts)
    timeline = simulated(actions, p * v, input_s=input_s, weight_s=weight_s)
    bubble_s = timeline.makespan_s - timeline.busy_s[0]
    assert bubble_s == pytest.approx((p - 1) * (1 + input_s - weight_s), abs=1e-9)


@given(possible_counts(names=("zb-v", "dualpipe-v")))
@settings(max_examples=50)
def test_v_schedules_leave_one_forward_for_each_hop_if_times_are_equal(counts):
    _, p, m, _ = counts
    assume(m >= 2 * p - 1)
    timeline = simulated(schedule_actions(*counts), 2 * p)
    assert timeline.makespan_s - timeline.busy_s[0] == pytest.approx(p - 1)
