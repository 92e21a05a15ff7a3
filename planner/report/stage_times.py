"""Figure: how long each stage takes for one microbatch, the bottleneck marked."""

from collections.abc import Sequence

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
from planner.report.findings import (
    bottleneck,
    measured_times_s,
    stage_time_s,
    stage_times_finding,
)
from planner.run_record import Measured
from planner.units import format_seconds, unit_for_seconds

_MEASURED_ALPHA = 0.5
_LABEL_PT = 8.0


def draw_stage_times(axes: Axes, plan: Plan, measured: Measured | None = None) -> None:
    """Draw F and B of one microbatch as one bar a stage, stage 0 on top.

    With a run each stage has two bars, predicted above measured in faded colours.
    The bottleneck is the measured one if there is a run.

    Args:
        axes: Empty axes.
        plan: The plan.
        measured: What a run measured, if there is one.
    """
    times = [(s.predicted.forward_s, s.predicted.backward_s) for s in plan.stages]
    totals_s = [stage_time_s(stage) for stage in plan.stages]
    groups = [(times, 1.0)]
    if measured:
        real = [(stage.forward_s, stage.backward_s) for stage in measured.stages]
        groups.append((real, _MEASURED_ALPHA))
    marked_s = measured_times_s(measured) if measured else totals_s
    unit, second = unit_for_seconds(max([*totals_s, *marked_s]))
    longest = max([*totals_s, *marked_s]) / second or 1.0
    axes.set_xlim(0, longest * (1.22 if axis_width_pt(axes) > 400 else 1.42))

    marked = bottleneck(marked_s)
    height = 0.76 / len(groups)
    for number, (pairs, alpha) in enumerate(groups):
        for stage, pair in enumerate(pairs):
            y = stage + (number - (len(groups) - 1) / 2) * height
            _draw_bar(axes, y, pair, height=height, second=second, alpha=alpha)
            is_marked = stage == marked and number == len(groups) - 1
            _label_bar(axes, y, sum(pair), second, is_marked and plan.num_stages > 1)
    mean = sum(marked_s) / len(marked_s) / second
    label = "measured mean" if measured else "mean"
    line = axes.axvline(
        mean, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=label
    )

    axes.set_xlabel(f"time of one microbatch [{unit}]")
    set_rows(axes, [(f"stage {s.index}", s.device) for s in plan.stages])
    plain_axes(axes, grid="x")
    set_finding(axes, stage_times_finding(plan, measured))
    kinds = [Patch(color=ACTION_COLORS[k], label=ACTION_TITLES[k]) for k in "FB"]
    faded = Patch(color=INK, alpha=_MEASURED_ALPHA, label="faded: measured")
    legend_below(axes, [*kinds, *([faded] if measured else []), line])


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
    pair: tuple[float, float],
    *,
    height: float,
    second: float,
    alpha: float,
) -> None:
    left = 0.0
    if alpha < 1:  # keep the grid from showing through
        axes.barh(y, sum(pair) / second, height, color=PAPER)
    for kind, time_s in zip("FB", pair, strict=True):
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
