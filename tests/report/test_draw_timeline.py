import time
from dataclasses import replace

import pytest
from matplotlib.figure import Figure
from report_samples import make_measured, make_plan, make_v_plan

from planner.report.spans import device_bubbles, measured_spans, predicted_spans
from planner.report.timeline import draw_timeline
from planner.units import format_percent


def drawn(plan, measured=None, width=9.0):
    axes = Figure(figsize=(width, 4)).subplots()
    spans = measured_spans(plan, measured) if measured else ()
    draw_timeline(axes, predicted_spans(plan), spans)
    return axes


def bars(axes, label):
    (collection,) = [c for c in axes.collections if c.get_label() == label]
    return [path.get_extents() for path in collection.get_paths()]


def numbers(axes):
    return [text.get_text() for text in axes.texts if text.get_text().isdecimal()]


def test_each_action_is_one_bar_to_scale():
    axes = drawn(make_plan(((0.1, 0.2), (0.11, 0.24)), num_microbatches=4))
    forwards, backwards = bars(axes, "F forward"), bars(axes, "B backward")
    assert sorted(bar.width for bar in forwards) == pytest.approx(
        [0.1] * 4 + [0.11] * 4
    )
    assert sorted(bar.width for bar in backwards) == pytest.approx(
        [0.2] * 4 + [0.24] * 4
    )
    assert axes.get_xlabel() == "time since the first F [s]"


def test_each_bar_with_room_has_its_microbatch():
    plan = make_plan(num_microbatches=4)
    assert sorted(numbers(drawn(plan))) == sorted([*"0123"] * 4)
    assert not numbers(drawn(plan, width=1.6))


def test_a_run_stands_below_the_prediction_on_the_same_axis():
    plan = make_plan(num_microbatches=4)
    axes = drawn(plan, make_measured(plan, slower=1.5))
    rows = sorted({round((bar.y0 + bar.y1) / 2, 3) for bar in bars(axes, "F forward")})
    assert rows == pytest.approx([0, 1, 3.1, 4.1])
    assert len(bars(axes, "B backward")) == 16
    ends = {row: 0.0 for row in rows}
    for bar in bars(axes, "B backward"):
        row = round((bar.y0 + bar.y1) / 2, 3)
        ends[row] = max(ends[row], bar.x1)
    assert ends[3.1] == pytest.approx(1.5 * ends[0])
    assert axes.get_xlim()[1] == pytest.approx(ends[3.1])
    headings = [text.get_text() for text in axes.texts if "," in text.get_text()]
    assert [heading.split(",")[0] for heading in headings] == ["predicted", "measured"]


def test_rows_name_their_stages_from_the_top():
    axes = drawn(make_plan())
    assert axes.yaxis_inverted()
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["stage 0", "stage 1"]


def test_the_legend_explains_what_is_drawn():
    names = [text.get_text() for text in drawn(make_plan()).get_legend().get_texts()]
    assert names == ["F forward", "B backward", "bubble"]


def test_a_large_schedule_is_a_handful_of_artists():
    plan = make_plan(((0.1, 0.2),) * 16, num_microbatches=64)
    spans = predicted_spans(plan)
    axes = Figure(figsize=(9, 6)).subplots()
    start_s = time.process_time()
    draw_timeline(axes, spans, spans)
    assert time.process_time() - start_s < 5
    assert len(bars(axes, "F forward")) == 2 * 16 * 64
    assert len(axes.get_children()) < 100


def test_a_step_that_takes_no_time_can_be_drawn():
    assert drawn(make_plan(((0.0, 0.0),))).get_xlim()[1] > 0


def names(axes):
    return sorted(t.get_text() for t in axes.texts if t.get_text()[1:2] in [*"FBIW"])


def test_a_card_with_several_stages_is_one_row_of_whole_names():
    plan = make_v_plan()
    axes = drawn(plan, make_measured(plan, with_devices=True))
    rows = [label.get_text() for label in axes.get_yticklabels()]
    assert rows == ["stages 0, 3", "stages 1, 2"] * 2
    assert names(drawn(plan)) == sorted(
        name for row in plan.schedule.actions for name in row
    )
    assert not numbers(axes)
    legend = [text.get_text()[0] for text in axes.get_legend().get_texts()]
    assert legend == ["F", "I", "W", "b"]


def test_a_name_stands_upright_where_it_does_not_fit_along_its_bar():
    turned = [t for t in drawn(make_v_plan(16)).texts if t.get_rotation() == 90]
    assert turned
    assert all(len(text.get_text()) in (3, 4) for text in turned)


def test_each_row_ends_with_its_own_bubble():
    plan = make_v_plan()
    spans = predicted_spans(plan)
    shares = [format_percent(share) for share in device_bubbles(spans, 2)]
    found = [t.get_text() for t in drawn(plan).texts if t.get_text().endswith("%")]
    assert found == shares


def test_an_action_of_no_time_does_not_blur_the_edges_of_the_others():
    plan = make_v_plan()
    first = plan.stages[0]
    whole = replace(
        first.predicted, input_grad_s=0.0, weight_grad_s=first.predicted.backward_s
    )
    plan = replace(plan, stages=(replace(first, predicted=whole), *plan.stages[1:]))
    (drawn_i,) = [c for c in drawn(plan).collections if c.get_label().startswith("I ")]
    assert sorted({round(width, 2) for width in drawn_i.get_linewidths()}) == [0, 0.5]
