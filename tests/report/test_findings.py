import math
from dataclasses import replace

import pytest
from report_samples import make_measured, make_metrics, make_plan, make_v_plan

from planner.report import findings
from planner.report.spans import measured_spans, predicted_spans


def test_the_bottleneck_is_named_with_its_distance_to_the_mean():
    plan = make_plan(((0.1, 0.2), (0.13, 0.27)))
    # 400 ms against a mean of 350 ms.
    assert findings.stage_times_finding(plan, None) == (
        "Stage 1 is the bottleneck: 400 ms a microbatch predicted, 14 % above the mean"
    )


def test_equal_stages_have_no_bottleneck():
    plan = make_plan(((0.1, 0.2), (0.1, 0.2)))
    assert findings.stage_times_finding(plan, None) == (
        "All stages take equally long: 300 ms a microbatch predicted"
    )
    measured = make_measured(plan, slower=1.1)
    assert findings.stage_times_finding(plan, measured) == (
        "All stages take equally long: 300 ms a microbatch predicted, 330 ms measured"
    )
    slow = replace(measured.stages[1], forward_s=0.14)
    measured = replace(measured, stages=(measured.stages[0], slow))
    assert findings.stage_times_finding(plan, measured) == (
        "Stage 1 is the measured bottleneck, where none was predicted: "
        "360 ms a microbatch, 4 % above the mean"
    )


def test_one_stage_is_no_bottleneck():
    plan = make_plan(((0.1, 0.2),))
    assert findings.stage_times_finding(plan, None) == (
        "One stage: 300 ms a microbatch predicted"
    )
    assert findings.stage_times_finding(plan, make_measured(plan, slower=2.0)) == (
        "One stage: 300 ms a microbatch predicted, 600 ms measured"
    )


def test_a_run_that_disagrees_about_the_bottleneck_says_so():
    plan = make_plan(((0.1, 0.2), (0.13, 0.27)))
    measured = make_measured(plan)
    swapped = replace(measured, stages=measured.stages[::-1])
    assert findings.stage_times_finding(plan, swapped) == (
        "Stage 0 is the measured bottleneck, not stage 1 as predicted: "
        "420 ms a microbatch, 14 % above the mean"
    )


def test_the_fullest_card_is_the_one_with_the_largest_share():
    assert findings.memory_finding(make_plan(), None) == (
        "Every stage fits; stage 0 is the fullest with 19.1 GiB of 23.7 GiB predicted"
    )


def test_what_does_not_fit_says_by_how_much():
    plan = make_plan(capacity_gib=18.1)
    assert findings.memory_finding(plan, None) == (
        "Stage 0 does not fit: it needs 19.1 GiB of 18.1 GiB, 1.00 GiB too much"
    )


def test_an_unknown_capacity_is_not_called_a_fit():
    finding = findings.memory_finding(make_plan(capacity_gib=0), None)
    assert finding == "Stage 0 needs most: 19.1 GiB predicted"


def test_measured_peaks_are_compared_without_the_reserve():
    plan = make_plan()  # the peaks are 97 % of what is predicted
    finding = findings.memory_finding(plan, make_measured(plan))
    assert finding.endswith("; largest error +3.1 %")


def test_the_timeline_says_its_bubble_and_makespan():
    plan = make_plan(((0.1, 0.2),), num_microbatches=4)
    spans = predicted_spans(plan)
    sizes = {"num_devices": 1, "num_microbatches": 4}
    assert findings.timeline_finding(spans, (), **sizes) == (
        "0.0 % bubble predicted: 4 microbatches over 1 device take 1.20 s"
    )
    measured = measured_spans(plan, make_measured(plan, slower=2.0))
    assert findings.timeline_finding(spans, measured, **sizes) == (
        "0.0 % bubble predicted, 0.0 % measured; "
        "makespan 1.20 s predicted, 2.40 s measured"
    )


def test_the_loss_says_where_it_went():
    metrics = make_metrics(10)
    assert findings.loss_finding(metrics) == "Loss falls from 4 to 3.1 in 10 steps"
    assert findings.loss_finding(metrics[::-1]).startswith("Loss rises from 3.1 to 4")
    assert findings.loss_finding(metrics[:1]) == "Loss is 4 after one step"
    assert findings.loss_finding(metrics[:1] * 2) == "Loss stays at 4 over 2 steps"
    evaluated = [*metrics[:-1], replace(metrics[-1], eval_loss=3.25)]
    assert findings.loss_finding(evaluated).endswith(", 3.25 in the last evaluation")


def test_the_gradient_norm_says_its_end_and_its_largest():
    assert findings.grad_norm_finding(make_metrics(10)) == (
        "Gradient norm ends at 1.2; largest 3 at step 1"
    )


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_the_finding(value):
    good = make_metrics(3)
    metrics = (good[0], replace(good[1], loss=value, grad_norm=value), good[2])
    assert findings.loss_finding(metrics) == "Loss is not a finite number at step 2"
    assert findings.grad_norm_finding(metrics) == (
        "Gradient norm is not a finite number at step 2"
    )


def test_nothing_measured_has_no_error():
    assert findings.relative_error(1.0, 0.0) is None
    assert findings.relative_error(0.9, 1.0) == pytest.approx(-0.1)


def test_the_bottleneck_is_the_card_whose_stages_together_take_longest():
    plan = make_v_plan()  # stage 1 alone would be the longest
    assert findings.stage_times_finding(plan, None) == (
        "Stages 0, 3 are the bottleneck: 660 ms a microbatch predicted, "
        "5 % above the mean"
    )
    measured = make_measured(plan, slower=2.0)
    slow = replace(measured.stages[2], forward_s=1.0)
    stages = (*measured.stages[:2], slow, measured.stages[3])
    assert findings.stage_times_finding(plan, replace(measured, stages=stages)) == (
        "Stages 1, 2 are the measured bottleneck, not stages 0, 3 as predicted: "
        "2.06 s a microbatch, 22 % above the mean"
    )


def test_memory_is_found_card_by_card():
    plan = make_v_plan()
    assert findings.memory_finding(plan, make_measured(plan, with_devices=True)) == (
        "Every card fits; stages 0, 3 are the fullest with 17.4 GiB of 23.7 GiB "
        "predicted; largest error +3.1 %"
    )
    assert findings.memory_finding(make_v_plan(capacity_gib=15.4), None) == (
        "Stages 0, 3 do not fit: they need 17.4 GiB of 15.4 GiB, 2.00 GiB too much"
    )
    assert findings.memory_finding(make_v_plan(capacity_gib=0), None) == (
        "Stages 0, 3 need most: 17.4 GiB predicted"
    )


def test_a_record_without_devices_tells_the_peak_of_a_card_by_its_first_stage():
    plan = make_v_plan()
    old, new = (make_measured(plan, with_devices=known) for known in (False, True))
    assert not old.devices
    assert findings.peaks_bytes(plan, old) == findings.peaks_bytes(plan, new)
    changed = replace(new, devices=(replace(new.devices[0], peak_bytes=5),) * 2)
    assert findings.peaks_bytes(plan, changed) == (5, 5)
