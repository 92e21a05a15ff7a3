"""What a timeline tells: why each action did not start sooner, and who waits."""

import pytest
from hypothesis import given
from random_orders import orders_with_times, ways_to_transfer

from planner.schedule.actions import parse_actions
from planner.schedule.named import schedule_actions
from planner.simulate import StageTimes, Transfers, simulate


def stage_times(forward_s, backward_s, send_s=0.0):
    return [
        StageTimes(
            forward_s=f, backward_s=b, send_forward_s=send_s, send_backward_s=send_s
        )
        for f, b in zip(forward_s, backward_s, strict=True)
    ]


def test_the_critical_path_is_as_long_as_the_makespan():
    actions = schedule_actions("1f1b", 3, 4)
    times = stage_times([1.0, 3.0, 2.0], [2.0, 5.0, 4.0])
    timeline = simulate(actions, times)
    length_s = sum(
        times[a.stage].forward_s if a.kind == "F" else times[a.stage].backward_s
        for a in timeline.critical_path
    )
    assert length_s == timeline.makespan_s
    assert str(timeline.critical_path[0]) == "0F0"
    assert str(timeline.critical_path[-1]) == "0B3"


def test_no_time_has_no_bubble():
    timeline = simulate(schedule_actions("1f1b", 2, 2), stage_times([0, 0], [0, 0]))
    assert (timeline.makespan_s, timeline.bubble_fraction) == (0.0, 0.0)
    assert timeline.busy_fraction == (0.0, 0.0)


def test_spans_tell_when_each_action_runs():
    timeline = simulate(schedule_actions("1f1b", 1, 1), stage_times([1.0], [2.0]))
    told = [(s.device, str(s.action), s.start_s, s.end_s) for s in timeline.spans]
    assert told == [(0, "0F0", 0.0, 1.0), (0, "0B0", 1.0, 3.0)]


def told(path):
    return [(str(x.span.action), x.waited_for, x.gap_s) for x in path]


def test_every_action_of_the_path_says_what_it_waited_for():
    actions = schedule_actions("1f1b", 2, 2)
    timeline = simulate(actions, stage_times([1.0, 1.0], [2.0, 2.0], send_s=0.5))
    assert told(timeline.path) == [
        ("0F0", "nothing", 0.0),
        ("1F0", "transfer", 0.5),
        ("1B0", "device", 0.0),
        ("1F1", "device", 0.0),
        ("1B1", "device", 0.0),
        ("0B1", "transfer", 0.5),
    ]


def test_a_sender_that_is_kept_busy_shows_in_the_path():
    actions = schedule_actions("1f1b", 2, 1)
    times = stage_times([1.0, 1.0], [2.0, 2.0], send_s=0.5)
    both = parse_actions((("0F0", "0F1", "0B0", "0B1"), ("1F0", "1B0", "1F1", "1B1")))
    timeline = simulate(both, times, Transfers(occupy="sender"))
    assert ("1F1", "device", 0.5) in told(timeline.path)
    assert ("0B0", "transfer", 0.5) in told(simulate(actions, times).path)


def test_any_action_says_what_it_waited_for():
    timeline = simulate(
        schedule_actions("1f1b", 2, 2), stage_times([1.0, 1.0], [2.0, 2.0])
    )
    assert timeline.waited_for(0, 0) is None
    assert timeline.waited_for(1, 0) == (0, 0)
    assert timeline.waited_for(1, 1) == (1, 0)
    assert timeline.waited_for(0, 2) == (1, 1)


@given(case=orders_with_times(), transfers=ways_to_transfer)
def test_durations_and_gaps_of_the_path_add_up_to_the_makespan(case, transfers):
    actions, times = case
    timeline = simulate(actions, times, transfers)
    length_s = sum(x.gap_s + _duration_s(x.span.action, times) for x in timeline.path)
    assert length_s == pytest.approx(timeline.makespan_s)
    assert timeline.critical_path == tuple(x.span.action for x in timeline.path)


def _duration_s(action, times):
    names = {"F": "forward", "B": "backward", "I": "input_grad", "W": "weight_grad"}
    return getattr(times[action.stage], f"{names[action.kind]}_s")


@given(case=orders_with_times())
def test_gaps_are_transfers_where_these_hold_nobody_up(case):
    actions, times = case
    before = None
    for step in simulate(actions, times).path:
        expected_s = 0.0
        if step.waited_for == "transfer":
            sender = times[before.action.stage]
            is_output = before.action.kind == "F"
            expected_s = sender.send_forward_s if is_output else sender.send_backward_s
            assert before.device != step.span.device
        assert step.gap_s == pytest.approx(expected_s, abs=1e-9)
        before = step.span


@given(case=orders_with_times(), transfers=ways_to_transfer)
def test_the_bubble_is_the_mean_of_the_devices(case, transfers):
    timeline = simulate(*case, transfers)
    bubbles = timeline.device_bubbles
    assert timeline.bubble_fraction == pytest.approx(sum(bubbles) / len(bubbles))
    for bubble, row in zip(bubbles, timeline.actions, strict=True):
        busy_s = sum(_duration_s(action, case[1]) for action in row)
        assert (1 - bubble) * timeline.makespan_s == pytest.approx(busy_s)


@pytest.mark.parametrize(("count", "num_microbatches"), [(2, 3), (4, 8)])
def test_each_device_leaves_the_textbook_bubble(count, num_microbatches):
    actions = schedule_actions("1f1b", count, num_microbatches)
    timeline = simulate(actions, stage_times([1.0] * count, [2.0] * count))
    share = (count - 1) / (num_microbatches + count - 1)
    assert timeline.device_bubbles == pytest.approx([share] * count)


def test_devices_end_when_their_last_action_ends():
    timeline = simulate(
        schedule_actions("1f1b", 2, 1), stage_times([1.0, 1.0], [2.0, 2.0])
    )
    assert timeline.device_ends_s == (6.0, 4.0)
