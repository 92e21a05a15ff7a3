from dataclasses import replace

import pytest
from matplotlib.figure import Figure
from report_samples import make_measured, make_plan, make_v_plan

from planner.report.colors import ACTION_COLORS
from planner.report.stage_times import draw_stage_times


def drawn(plan, measured=None, width=9.0):
    axes = Figure(figsize=(width, 3)).subplots()
    draw_stage_times(axes, plan, measured)
    return axes


def bars(axes, kind):
    from matplotlib.colors import to_rgb

    return [
        p for p in axes.patches if p.get_facecolor()[:3] == to_rgb(ACTION_COLORS[kind])
    ]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_a_plan_has_one_f_and_one_b_a_stage_to_scale():
    axes = drawn(make_plan(((0.1, 0.2), (0.11, 0.24))))
    assert [bar.get_width() for bar in bars(axes, "F")] == pytest.approx([100, 110])
    assert [bar.get_width() for bar in bars(axes, "B")] == pytest.approx([200, 240])
    assert [bar.get_x() for bar in bars(axes, "B")] == pytest.approx([100, 110])
    assert axes.get_xlabel() == "time of one microbatch [ms]"


def test_a_run_has_predicted_and_measured_side_by_side():
    plan = make_plan()
    axes = drawn(plan, make_measured(plan))
    predicted, measured = bars(axes, "F")[:2], bars(axes, "F")[2:]
    assert [
        p.get_y() < m.get_y() for p, m in zip(predicted, measured, strict=True)
    ] == [
        True,
        True,
    ]
    assert [bar.get_width() for bar in measured] == pytest.approx([105, 115.5])


def test_only_the_bottleneck_is_marked():
    marked = [text for text in texts(drawn(make_plan())) if "bottleneck" in text]
    assert marked == ["\N{BLACK LEFT-POINTING TRIANGLE} 350 ms bottleneck"]


@pytest.mark.parametrize("num_stages", [1, 2])
def test_a_single_stage_or_one_of_equals_is_not_called_a_bottleneck(num_stages):
    axes = drawn(make_plan(((0.1, 0.2),) * num_stages))
    assert not [text for text in texts(axes) if "bottleneck" in text]


def test_a_bar_without_room_for_its_time_has_its_name():
    axes = drawn(make_plan(((0.4, 0.03), (0.4, 0.002))))
    assert texts(axes).count("B") == 1


def test_stage_0_is_on_top_and_each_row_names_its_card():
    axes = drawn(make_plan())
    assert axes.yaxis_inverted()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["stage 0\nrtx3090:0", "stage 1\nrtx3090:1"]


def test_text_stays_out_of_bars_that_are_too_short_for_it():
    plan = make_plan(((0.001, 0.4), (0.1, 0.3)))
    inside = [text for text in texts(drawn(plan)) if text.startswith("F ")]
    assert inside == ["F 100 ms"]


def test_a_plan_without_times_can_be_drawn():
    assert drawn(make_plan(((0.0, 0.0), (0.0, 0.0)))).get_xlim()[1] > 0


def test_a_split_backward_is_drawn_as_i_and_w():
    plan = make_v_plan()
    axes = drawn(plan)
    backward_ms = [220, 260, 130, 220]
    by_card = [backward_ms[stage] for stage in (0, 3, 1, 2)]
    assert [bar.get_width() for bar in bars(axes, "I")] == pytest.approx(
        [0.6 * b for b in by_card]
    )
    assert [bar.get_width() for bar in bars(axes, "W")] == pytest.approx(
        [0.4 * b for b in by_card]
    )
    assert not bars(axes, "B")
    assert len(bars(drawn(plan, make_measured(plan)), "W")) == 8
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert [name.split()[0] for name in legend] == ["F", "I", "W", "mean"]


def test_the_stages_of_a_card_are_one_bar_each_action_with_its_stage():
    axes = drawn(make_v_plan())
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["stages 0, 3\nrtx3090:0", "stages 1, 2\nrtx3090:1"]
    first = [t.get_text() for t in axes.texts if t.get_position()[1] == 0]
    assert [text.split()[0] for text in first[:6]] == [
        *("0F", "0I", "0W", "3F", "3I", "3W")
    ]
    assert [text for text in texts(axes) if "bottleneck" in text] == [
        "\N{BLACK LEFT-POINTING TRIANGLE} 660 ms bottleneck"
    ]
    (mean,) = axes.get_lines()
    assert mean.get_xdata()[0] == pytest.approx((660 + 600) / 2)


def test_where_some_backwards_are_split_the_axis_says_that_times_are_means():
    plan = make_plan(num_microbatches=2)
    rows = ("0F0 0F1 0B0 0B1", "1F0 1I0 1W0 1F1 1B1")
    actions = tuple(tuple(row.split()) for row in rows)
    mixed = replace(plan, schedule=replace(plan.schedule, actions=actions))
    assert drawn(mixed).get_xlabel() == "mean time of one microbatch [ms]"
