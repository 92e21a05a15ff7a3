"""The simulator against pictures and closed forms."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.schedule.actions import parse_actions
from planner.schedule.named import schedule_actions
from planner.simulate import StageTimes, simulate, timeline_rows


def stage_times(forward_s, backward_s, send_s=0.0):
    return [
        StageTimes(
            forward_s=f, backward_s=b, send_forward_s=send_s, send_backward_s=send_s
        )
        for f, b in zip(forward_s, backward_s, strict=True)
    ]


def test_1f1b_with_equal_stages():
    actions = schedule_actions("1f1b", 2, 3)
    timeline = simulate(actions, stage_times([1.0, 1.0], [2.0, 2.0]))
    assert timeline_rows(timeline, cell_s=1.0) == [
        "F0 F1 .. .. B0 B0 F2 B1 B1 .. B2 B2",
        ".. F0 B0 B0 F1 B1 B1 F2 B2 B2 .. ..",
    ]
    # Textbook: makespan (M + S - 1)(F + B), bubble (S - 1) / (M + S - 1).
    assert timeline.makespan_s == (3 + 2 - 1) * (1 + 2)
    assert timeline.bubble_fraction == pytest.approx((2 - 1) / (3 + 2 - 1))


def test_gpipe_with_a_slow_link():
    actions = schedule_actions("gpipe", 2, 2)
    timeline = simulate(actions, stage_times([1.0, 1.0], [2.0, 2.0], send_s=1.0))
    assert timeline_rows(timeline, cell_s=1.0) == [
        "F0 F1 .. .. .. .. .. B0 B0 B1 B1",
        ".. .. F0 F1 B0 B0 B1 B1 .. .. ..",
    ]


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize("num_stages", [1, 2, 4, 7])
@pytest.mark.parametrize("num_microbatches", [1, 2, 8])
def test_the_bubble_equals_the_closed_form(name, num_stages, num_microbatches):
    actions = schedule_actions(name, num_stages, num_microbatches)
    times = stage_times([1.0] * num_stages, [2.0] * num_stages)
    timeline = simulate(actions, times)
    share = (num_stages - 1) / (num_microbatches + num_stages - 1)
    assert timeline.bubble_fraction == pytest.approx(share)
    assert timeline.busy_fraction == pytest.approx([1 - share] * num_stages)


def test_four_devices_and_eight_microbatches_leave_27_percent_empty():
    for name in ("gpipe", "1f1b"):
        actions = schedule_actions(name, 4, 8)
        timeline = simulate(actions, stage_times([1.0] * 4, [2.0] * 4))
        assert round(timeline.bubble_fraction, 3) == 0.273


@given(
    times=st.lists(
        st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=5
    ),
    num_microbatches=st.integers(1, 6),
    send_s=st.floats(0, 3),
)
def test_gpipe_equals_its_closed_form(times, num_microbatches, send_s):
    forward_s, backward_s = zip(*times, strict=True)
    actions = schedule_actions("gpipe", len(times), num_microbatches)
    timeline = simulate(actions, stage_times(forward_s, backward_s, send_s))
    # Two flow shops of equal jobs, one after the other.
    assert timeline.makespan_s == pytest.approx(
        sum(forward_s)
        + sum(backward_s)
        + 2 * send_s * (len(times) - 1)
        + (num_microbatches - 1) * (max(forward_s) + max(backward_s))
    )


@given(
    times=st.lists(
        st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=5
    ),
    num_microbatches=st.integers(1, 6),
    send_s=st.floats(0, 3),
)
def test_1f1b_is_never_below_the_textbook_bounds(times, num_microbatches, send_s):
    count = len(times)
    actions = schedule_actions("1f1b", count, num_microbatches)
    timeline = simulate(actions, stage_times(*zip(*times, strict=True), send_s))
    totals = [f + b for f, b in times]
    for s, (forward_s, _) in enumerate(times):
        reach_s = sum(totals[:s]) + 2 * send_s * s
        assert timeline.makespan_s >= num_microbatches * totals[s] + reach_s - 1e-9
        round_trip_s = sum(totals) + 2 * send_s * (count - 1)
        saved_s = (min(num_microbatches, count - s) - 1) * forward_s
        steady_s = (num_microbatches - 1) * totals[s] - saved_s
        assert timeline.makespan_s >= round_trip_s + steady_s - 1e-9


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


def test_stages_on_one_device_hand_over_without_a_transfer():
    actions = parse_actions((("0F0", "2F0", "2B0", "0B0"), ("1F0", "1B0")))
    together = parse_actions((("0F0", "1F0", "2F0", "2B0", "1B0", "0B0"),))
    times = stage_times([1.0] * 3, [1.0] * 3, send_s=10.0)
    assert simulate(actions, times).makespan_s == 6 * 1.0 + 4 * 10.0
    assert simulate(together, times).makespan_s == 6 * 1.0


def test_a_device_with_two_stages_shows_them():
    actions = parse_actions((("0F0", "1F0", "1B0", "0B0"),))
    timeline = simulate(actions, stage_times([1.0, 1.0], [1.0, 1.0]))
    assert timeline_rows(timeline, 1.0) == ["0F0 1F0 1B0 0B0"]


def test_the_backward_may_be_split():
    actions = parse_actions((("0F0", "0I0", "0W0"), ("1F0", "1I0", "1W0")))
    half = StageTimes(forward_s=1, backward_s=9, input_grad_s=1, weight_grad_s=2)
    timeline = simulate(actions, [half, half])
    assert timeline_rows(timeline, 1.0) == [
        "F0 .. .. I0 W0 W0",
        ".. F0 I0 W0 W0 ..",
    ]


def test_a_deadlock_is_an_error():
    actions = parse_actions((("0B0", "0F0"), ("1F0", "1B0")))
    with pytest.raises(ValueError, match="wait for each other"):
        simulate(actions, stage_times([1.0, 1.0], [1.0, 1.0]))


def test_no_time_has_no_bubble():
    timeline = simulate(schedule_actions("1f1b", 2, 2), stage_times([0, 0], [0, 0]))
    assert (timeline.makespan_s, timeline.bubble_fraction) == (0.0, 0.0)
    assert timeline.busy_fraction == (0.0, 0.0)


def test_spans_tell_when_each_action_runs():
    timeline = simulate(schedule_actions("1f1b", 1, 1), stage_times([1.0], [2.0]))
    told = [(s.device, str(s.action), s.start_s, s.end_s) for s in timeline.spans]
    assert told == [(0, "0F0", 0.0, 1.0), (0, "0B0", 1.0, 3.0)]


def test_sixteen_stages_and_64_microbatches_take_milliseconds():
    actions = schedule_actions("1f1b", 16, 64)
    times = stage_times([1.0] * 16, [2.0] * 16, send_s=0.1)
    taken_s = []
    for _ in range(5):
        started = time.perf_counter()
        simulate(actions, times)
        taken_s.append(time.perf_counter() - started)
    assert min(taken_s) < 0.05
