"""The simulator against pictures and closed forms."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_orders import orders_with_times, ways_to_transfer

from planner.schedule.actions import parse_actions
from planner.schedule.named import schedule_actions
from planner.simulate import (
    StageTimes,
    Transfers,
    simulate,
    simulate_wired,
    timeline_rows,
    wire,
)


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


# --- transfers that hold somebody up ------------------------------------------


def drawn(transfers, name="1f1b", count=2, num_microbatches=2, send_s=1.0):
    actions = schedule_actions(name, count, num_microbatches)
    times = stage_times([1.0] * count, [2.0] * count, send_s=send_s)
    return timeline_rows(simulate(actions, times, transfers), cell_s=1.0)


def test_a_transfer_that_overlaps_delays_only_who_waits_for_it():
    assert drawn(Transfers()) == [
        "F0 F1 .. .. .. .. B0 B0 .. B1 B1",
        ".. .. F0 B0 B0 F1 B1 B1 .. .. ..",
    ]


def test_a_sender_may_be_kept_busy():
    assert drawn(Transfers(occupy="sender")) == [
        "F0 .. F1 .. .. .. B0 B0 .. .. B1 B1",
        ".. .. F0 B0 B0 .. F1 B1 B1 .. .. ..",
    ]


def test_a_receiver_may_be_kept_busy_too():
    # F1 was received while B0 was at work: it costs its time before F1.
    assert drawn(Transfers(occupy="both")) == [
        "F0 .. F1 .. .. .. B0 B0 .. .. .. B1 B1",
        ".. .. F0 B0 B0 .. .. F1 B1 B1 .. .. ..",
    ]


def test_on_a_queued_link_transfers_wait_for_each_other():
    # The second output is made while the first is on its way until 4.
    assert drawn(Transfers(queued=True), "gpipe", send_s=3.0) == [
        "F0 F1 .. .. .. .. .. .. .. .. .. .. .. B0 B0 .. B1 B1",
        ".. .. .. .. F0 .. .. F1 B0 B0 B1 B1 .. .. .. .. .. ..",
    ]


# --- whatever the order and the times -----------------------------------------


def scaled(times, factor):
    return StageTimes(**{k: factor * getattr(times, k) for k in StageTimes.__slots__})


@given(case=orders_with_times(), transfers=ways_to_transfer, factor=st.floats(0.1, 10))
def test_the_makespan_scales_with_all_times(case, transfers, factor):
    actions, times = case
    slow = [scaled(time, factor) for time in times]
    once, more = (simulate(actions, t, transfers).makespan_s for t in (times, slow))
    assert more == pytest.approx(factor * once, abs=1e-9)


@given(
    case=orders_with_times(),
    transfers=ways_to_transfer,
    which=st.tuples(st.integers(0), st.sampled_from(list(StageTimes.__slots__))),
    extra_s=st.floats(0, 10),
)
def test_what_takes_longer_never_makes_a_step_shorter(case, transfers, which, extra_s):
    actions, times = case
    stage, name = which[0] % len(times), which[1]
    slower = list(times)
    slower[stage] = replace(
        times[stage], **{name: getattr(times[stage], name) + extra_s}
    )
    before, after = (
        simulate(actions, t, transfers).makespan_s for t in (times, slower)
    )
    assert after >= before - 1e-9


@given(case=orders_with_times(), transfers=ways_to_transfer)
def test_holding_somebody_up_never_makes_a_step_shorter(case, transfers):
    actions, times = case
    held_up_s = simulate(actions, times, transfers).makespan_s
    assert held_up_s >= simulate(actions, times).makespan_s - 1e-9


@given(case=orders_with_times(), transfers=ways_to_transfer)
def test_an_action_starts_when_its_device_is_free_and_its_input_is_there(
    case, transfers
):
    actions, times = case
    timeline = simulate(actions, times, transfers)
    assert tuple(len(row) for row in timeline.starts_s) == tuple(map(len, actions))
    made = {
        (s.action.stage, s.action.kind == "F", s.action.microbatch): s
        for s in timeline.spans
        if s.action.kind != "W"
    }
    free_s = [0.0] * len(actions)
    for span in timeline.spans:
        earliest_s, action = free_s[span.device], span.action
        free_s[span.device] = span.end_s
        is_forward = action.kind == "F"
        sender = action.stage + (-1 if is_forward else 1)
        maker = made.get((sender, is_forward, action.microbatch))
        if action.kind != "W" and maker is not None:
            way = times[sender]
            send_s = way.send_forward_s if is_forward else way.send_backward_s
            send_s *= maker.device != span.device
            earliest_s = max(earliest_s, maker.end_s + send_s)
        assert span.start_s >= earliest_s - 1e-9
        if transfers == Transfers():
            assert span.start_s == pytest.approx(earliest_s)


@given(first=orders_with_times())
def test_an_order_that_is_wired_once_may_be_clocked_with_any_times(first):
    actions, times = first
    wiring = wire(actions)
    doubled = [scaled(t, 2.0) for t in times]
    for some in (times, doubled, times):
        assert simulate_wired(wiring, some) == simulate(actions, some)
