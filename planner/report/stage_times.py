"""Figure: how long each stage takes for one microbatch, the bottleneck marked."""

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from planner.plan import Plan
from planner.report.colors import (
    ACTION_COLORS,
    ACTION_TITLES,
    BOTTLENECK_COLOR,
    INK,
    PAPER,
    text_color_on,
)
from planner.report.drawing import (
    axis_width_pt,
    legend_below,
    plain_axes,
    set_finding,
)
from planner.report.findings import stage_times_finding
from planner.report.loads import (
    Parts,
    all_kinds,
    bottleneck,
    card_times_s,
    measured_parts,
    predicted_parts,
    stage_times_s,
)
from planner.run_record import Measured
from planner.units import format_seconds, unit_for_seconds

_MEASURED_ALPHA = 0.5
_LABEL_PT = 8.0


def draw_stage_times(axes: Axes, plan: Plan, measured: Measured | None = None) -> None:
    """Draw one microbatch as one bar a stage, stage 0 on top.

    A bar is F and B, or F, I and W where the backward is split; where only some are,
    all of them, each as often as the order has it. With a run each stage has two
    bars, predicted above measured in faded colours. All stages of the bottleneck are
    marked, the measured one if there is a run; the mean is drawn where every card
    has one stage, as the finding is about cards.

    Args:
        axes: Empty axes.
        plan: The plan.
        measured: What a run measured, if there is one.
    """
    groups = [(predicted_parts(plan), 1.0)]
    if measured:
        groups.append((measured_parts(plan, measured), _MEASURED_ALPHA))
    longest_s = max(max(stage_times_s(parts)) for parts, _ in groups)
    unit, second = unit_for_seconds(longest_s)
    room = 1.22 if axis_width_pt(axes) > 400 else 1.42
    axes.set_xlim(0, (longest_s / second or 1.0) * room)

    judged = groups[-1][0]
    slow = plan.cards[bottleneck(card_times_s(plan, judged))]
    marked = slow.stages if len(plan.cards) > 1 else ()
    height = 0.76 / len(groups)
    for number, (parts, alpha) in enumerate(groups):
        for stage, one in enumerate(parts):
            y = stage + (number - (len(groups) - 1) / 2) * height
            _draw_bar(axes, y, one, height=height, second=second, alpha=alpha)
            is_marked = stage in marked and parts is judged
            _label_bar(axes, y, sum(one.values()), second, is_marked)

    axes.set_xlabel(f"time of one microbatch [{unit}]")
    set_rows(axes, [(f"stage {s.index}", s.device) for s in plan.stages])
    plain_axes(axes, grid="x")
    set_finding(axes, stage_times_finding(plan, measured))
    kinds = all_kinds(judged)
    handles: list[Artist] = [
        Patch(color=ACTION_COLORS[k], label=ACTION_TITLES[k]) for k in kinds
    ]
    if measured:
        handles.append(Patch(color=INK, alpha=_MEASURED_ALPHA, label="faded: measured"))
    if len(plan.cards) == plan.num_stages:
        label = "measured mean" if measured else "mean"
        handles.append(_draw_mean(axes, judged, second, label))
    legend_below(axes, handles)


def _draw_mean(axes: Axes, parts: Sequence[Parts], second: float, label: str) -> Artist:
    mean_s = sum(stage_times_s(parts)) / len(parts)
    return axes.axvline(
        mean_s / second, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=label
    )


def set_rows(axes: Axes, names: Sequence[tuple[str, str]]) -> None:
    """Label the rows of a figure, the first on top.

    Args:
        axes: Row i is centred on y = i.
        names: Title and device of each row.
    """
    axes.set_yticks(range(len(names)), ["\n".join(pair) for pair in names])
    axes.set_ylim(len(names) - 0.5, -0.5)


def _draw_bar(
    axes: Axes,
    y: float,
    parts: Parts,
    *,
    height: float,
    second: float,
    alpha: float,
) -> None:
    left = 0.0
    if alpha < 1:  # keep the grid from showing through
        axes.barh(y, sum(parts.values()) / second, height, color=PAPER)
    for kind, time_s in parts.items():
        width = time_s / second
        axes.barh(
            y,
            width,
            height,
            left=left,
            color=ACTION_COLORS[kind],
            alpha=alpha,
            edgecolor="none",
        )
        text = f"{kind} {format_seconds(time_s)}"
        room_pt = width / axes.get_xlim()[1] * axis_width_pt(axes)
        if room_pt > 0.7 * _LABEL_PT * len(text):
            color = text_color_on(ACTION_COLORS[kind]) if alpha == 1.0 else INK
            axes.text(
                left + width / 2,
                y,
                text,
                ha="center",
                va="center",
                fontsize=_LABEL_PT,
                color=color,
            )
        left += width


def _label_bar(
    axes: Axes, y: float, total_s: float, second: float, is_bottleneck: bool
) -> None:
    text = format_seconds(total_s)
    axes.annotate(
        f"\N{BLACK LEFT-POINTING TRIANGLE} {text} bottleneck"
        if is_bottleneck
        else text,
        (total_s / second, y),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        color=BOTTLENECK_COLOR if is_bottleneck else INK,
        fontweight="bold" if is_bottleneck else "normal",
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.8},
    )
