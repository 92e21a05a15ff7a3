from dataclasses import replace

import pytest
from report_samples import make_measured, make_plan, make_v_plan

from planner.report.spans import device_bubbles, makespan_s, measured_spans
from planner.report.tables import baseline_rows, compared_numbers, compared_rows
from planner.run_record import Measured, MeasuredStage
from planner.units import GIB


def test_each_number_has_its_error():
    plan = make_plan()
    measured = make_measured(plan)
    spans = measured_spans(plan, measured)
    frame = compared_numbers(plan, measured, spans).set_index("quantity")
    assert frame.loc["step time", "predicted"] == plan.predicted.step_s
    assert frame.loc["makespan", "measured"] == makespan_s(spans)
    assert frame.loc["stage 1: F", "error"] == pytest.approx(1 / 1.05 - 1)
    assert frame.loc["stage 0: memory", "predicted"] == pytest.approx(18.1 * GIB)
    assert frame.loc["stage 0: memory", "error"] == pytest.approx(1 / 0.97 - 1)
    assert frame.loc["optimizer step", "error"] == pytest.approx(0.05 / 0.06 - 1)


def test_shares_differ_in_points():
    plan = make_plan(((0.1, 0.2),))  # one stage: no bubble, 20 % claimed
    measured = make_measured(plan)
    frame = compared_numbers(plan, measured, measured_spans(plan, measured))
    rows = {row.cells[0]: row.cells[1:] for row in compared_rows(frame)}
    assert rows["bubble"][0] == "20.0 %"
    assert rows["bubble"][2] == "+20.0 points"


def test_numbers_have_units():
    plan = make_plan()
    frame = compared_numbers(plan, make_measured(plan), ())
    rows = {row.cells[0]: row.cells[1:] for row in compared_rows(frame)}
    assert rows["stage 0: F"] == ("100 ms", "105 ms", "-4.8 %")
    assert rows["stage 0: memory"] == ("18.1 GiB", "17.6 GiB", "+3.1 %")
    assert rows["tokens a second"][0].endswith(" /s")
    assert "makespan" not in rows  # no spans, nothing measured


def test_what_was_not_measured_has_no_error():
    plan = make_plan()
    stages = (MeasuredStage(), MeasuredStage())
    measured = Measured(step_s=2.0, tokens_per_s=512.0, stages=stages)
    rows = {
        row.cells[0]: row.cells
        for row in compared_rows(compared_numbers(plan, measured, ()))
    }
    assert rows["stage 0: F"] == ("stage 0: F", "100 ms", "-", "-")


def test_baselines_are_sorted_with_this_plan_among_them():
    plan = make_plan()
    rows = baseline_rows(plan)
    assert [row.cells[0] for row in rows] == [
        "this plan",
        "even layers",
        "even parameters",
    ]
    assert [row.is_marked for row in rows] == [True, False, False]
    step_s, other_s = plan.predicted.step_s, plan.baselines[0].step_s
    assert rows[1].cells[1] == "3, 3"
    assert rows[1].cells[3] == f"{100 * (other_s / step_s - 1):+.1f} %"
    assert [row.cells[4] for row in rows] == ["yes", "yes", "no"]


def test_memory_and_bubble_are_compared_by_card_and_i_and_w_by_stage():
    plan = make_v_plan()
    measured = make_measured(plan, with_devices=True)
    spans = measured_spans(plan, measured)
    frame = compared_numbers(plan, measured, spans).set_index("quantity")
    assert [name for name in frame.index if "memory" in name] == [
        "stages 0, 3: memory",
        "stages 1, 2: memory",
    ]
    assert frame.loc["stages 0, 3: memory", "error"] == pytest.approx(1 / 0.97 - 1)
    assert frame.loc["stages 1, 2: bubble", "predicted"] == pytest.approx(0.2)
    shares = device_bubbles(spans, 2)
    assert frame.loc["stages 1, 2: bubble", "measured"] == shares[1]
    assert frame.loc["stage 1: I", "predicted"] == pytest.approx(0.156)
    assert frame.loc["stage 1: W", "error"] == pytest.approx(1 / 1.05 - 1)
    assert "stage 1: B" not in frame.index


def test_times_are_compared_action_by_action_also_where_few_are_split():
    plan = make_plan(num_microbatches=2)
    rows = ("0F0 0F1 0B0 0B1", "1F0 1I0 1W0 1F1 1B1")
    actions = tuple(tuple(row.split()) for row in rows)
    plan = replace(plan, schedule=replace(plan.schedule, actions=actions))
    times = MeasuredStage(backward_s=0.3, input_grad_s=0.2, weight_grad_s=0.15)
    measured = Measured(step_s=2.0, tokens_per_s=512.0, stages=(times, times))
    frame = compared_numbers(plan, measured, ()).set_index("quantity")
    assert frame.loc["stage 1: B", "measured"] == 0.3
    assert frame.loc["stage 1: I", "measured"] == 0.2
    assert "stage 0: W" not in frame.index
