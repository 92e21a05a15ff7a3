import pytest
from matplotlib.figure import Figure
from report_samples import make_measured, make_plan, make_v_plan

from planner.report.memory import draw_memory


def drawn(plan, measured=None):
    axes = Figure(figsize=(9, 3)).subplots()
    draw_memory(axes, plan, measured)
    return axes


def stack(axes, stage):
    bars = [bar for bar in axes.patches if bar.get_y() < stage < bar.get_y() + 1]
    return [(bar.get_x(), bar.get_width()) for bar in bars]


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_items_are_stacked_without_gaps_up_to_the_total():
    axes = drawn(make_plan())
    items = stack(axes, 0)
    assert [width for _, width in items] == pytest.approx([2, 2, 8, 5, 1, 0.1, 1])
    ends = [left + width for left, width in items]
    assert [left for left, _ in items[1:]] == pytest.approx(ends[:-1])
    assert ends[-1] == pytest.approx(19.1)
    assert axes.get_xlabel() == "predicted memory [GiB]"


def test_only_the_reserve_is_hatched_and_it_comes_last():
    axes = drawn(make_plan(((0.1, 0.2),)))
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [False] * 6 + [True]


def test_each_card_has_its_capacity():
    axes = drawn(make_plan())
    lines = [line.get_segments()[0][0][0] for line in axes.collections]
    assert lines == pytest.approx([23.7, 23.7])
    assert "capacity" in legend(axes)


def test_a_capacity_far_out_is_said_not_drawn():
    axes = drawn(make_plan(capacity_gib=500))
    assert not axes.collections
    assert axes.get_xlabel() == "predicted memory [GiB]; capacity 500.0 GiB is beyond"
    assert axes.get_xlim()[1] < 30


def test_an_unknown_capacity_is_not_drawn():
    axes = drawn(make_plan(capacity_gib=0))
    assert not axes.collections
    assert "capacity" not in legend(axes)


def test_what_does_not_fit_is_labelled_with_the_excess():
    labels = [text.get_text() for text in drawn(make_plan(capacity_gib=18.6)).texts]
    assert labels == ["19.1 GiB, 512 MiB too much", "18.2 GiB"]


def test_measured_peaks_are_marked_where_they_are():
    plan = make_plan()
    axes = drawn(plan, make_measured(plan))
    (marks,) = axes.get_lines()
    assert list(marks.get_xdata()) == pytest.approx(
        [0.97 * 18.1, 0.97 * 17.2], rel=1e-6
    )
    assert list(marks.get_ydata()) == [0, 1]
    assert legend(axes)[-1] == "measured peak"


def test_items_of_no_size_are_not_in_the_legend():
    assert "reserve" not in legend(drawn(make_plan(reserve_gib=0)))
    assert "reserve" in legend(drawn(make_plan()))


def test_an_empty_stage_can_be_drawn():
    plan = make_plan(scales=(0.0, 0.0), reserve_gib=0)
    assert drawn(plan).get_xlim()[1] > 0


def test_the_stages_of_a_card_are_one_bar_with_one_capacity_and_one_peak():
    plan = make_v_plan()
    axes = drawn(plan, make_measured(plan, with_devices=True))
    assert [sum(w for _, w in stack(axes, card)) for card in (0, 1)] == pytest.approx(
        [17.4, 12.0]
    )
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["stages 0, 3\nrtx3090:0", "stages 1, 2\nrtx3090:1"]
    assert len(axes.collections) == 2
    (marks,) = axes.get_lines()
    assert list(marks.get_xdata()) == pytest.approx([0.97 * 16.4, 0.97 * 11], rel=1e-6)
