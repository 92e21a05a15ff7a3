from dataclasses import replace

import pytest
from report_samples import make_measured, make_plan, make_v_plan

from planner.report.spans import (
    bubble_fraction,
    device_bubbles,
    makespan_s,
    measured_spans,
    predicted_spans,
    stages_of_devices,
)
from planner.schedule.actions import parse_actions
from planner.simulate import StageTimes, simulate


def with_actions(plan, actions):
    return replace(plan, schedule=replace(plan.schedule, actions=actions))


def test_equal_stages_have_the_textbook_bubble():
    # 1F1B with S = 2, M = 4 and free links: (S - 1) / (M + S - 1).
    plan = make_plan(((1.0, 2.0), (1.0, 2.0)))
    free = tuple(
        replace(s, predicted=replace(s.predicted, send_forward_s=0, send_backward_s=0))
        for s in plan.stages
    )
    spans = predicted_spans(replace(plan, stages=free))
    assert makespan_s(spans) == pytest.approx((4 + 2 - 1) * 3.0)
    assert bubble_fraction(spans, 2) == pytest.approx(1 / 5)


def test_transfers_delay_the_next_stage():
    plan = make_plan(((1.0, 2.0), (1.0, 2.0)), num_microbatches=1)
    # One microbatch there and back: two F, two B, two transfers of 4 ms.
    assert makespan_s(predicted_spans(plan)) == pytest.approx(6.008)


def test_measured_spans_stand_on_the_device_that_the_plan_says():
    plan = make_plan(num_microbatches=2)
    swapped = with_actions(plan, plan.schedule.actions[::-1])
    spans = measured_spans(swapped, make_measured(plan))
    assert len(spans) == 8
    assert all(span.device == 1 - span.action.stage for span in spans)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ((("0F0", "0I0", "0W0"), ("1F0", "1B0")), "no times for I and W"),
        ((("0F0", "0B0"), ("2F0", "2B0")), "no device works on stage 1"),
        (((), ()), "no device works on stage 0"),
        ((("0F0", "forward"), ("1F0",)), "'forward' is not an action"),
    ],
)
def test_an_order_that_cannot_be_simulated_is_named(actions, message):
    with pytest.raises(ValueError, match=message):
        predicted_spans(with_actions(make_plan(), actions))


def test_an_order_that_can_never_run_is_refused():
    actions = (("0B0", "0F0"), ("1F0", "1B0"))
    with pytest.raises(ValueError, match="0B0"):
        predicted_spans(with_actions(make_plan(num_microbatches=1), actions))


def test_a_stage_without_spans_leaves_no_measured_timeline():
    plan = make_plan()
    measured = make_measured(plan)
    silent = replace(measured.stages[1], spans=())
    stages = (measured.stages[0], silent)
    assert measured_spans(plan, replace(measured, stages=stages)) == ()


def test_i_and_w_take_the_times_that_the_plan_says():
    plan = make_v_plan()
    own = {str(s.action): s.end_s - s.start_s for s in predicted_spans(plan)}
    assert set(own) == {name for row in plan.schedule.actions for name in row}
    assert own["1I0"] == pytest.approx(0.156)
    assert own["1W0"] == pytest.approx(0.104)


def test_the_bubble_of_a_card_is_the_simulator_s():
    plan = make_v_plan()
    actions = parse_actions(plan.schedule.actions)
    times = [
        StageTimes(
            forward_s=s.predicted.forward_s,
            backward_s=s.predicted.backward_s,
            input_grad_s=s.predicted.input_grad_s,
            weight_grad_s=s.predicted.weight_grad_s,
            send_forward_s=s.predicted.send_forward_s,
            send_backward_s=s.predicted.send_backward_s,
        )
        for s in plan.stages
    ]
    spans = predicted_spans(plan)
    bubbles = device_bubbles(spans, 2)
    assert bubbles == pytest.approx(simulate(actions, times).device_bubbles)
    assert sum(bubbles) / 2 == pytest.approx(bubble_fraction(spans, 2))


def test_measured_spans_of_all_stages_of_a_card_are_in_one_row():
    plan = make_v_plan()
    spans = measured_spans(plan, make_measured(plan, with_devices=True))
    assert stages_of_devices(spans) == {0: (0, 3), 1: (1, 2)}
