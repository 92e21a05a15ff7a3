from dataclasses import replace

import pytest
from report_samples import make_measured, make_plan

from planner.report.spans import (
    bubble_fraction,
    makespan_s,
    measured_spans,
    predicted_spans,
)


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
