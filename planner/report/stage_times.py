"""Figure: how long each card takes for one microbatch, the bottleneck marked."""

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from planner.plan import CardPlan, Plan
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
    is_wide,
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
)
from planner.run_record import Measured
from planner.units import format_seconds, unit_for_seconds

_MEASURED_ALPHA = 0.5
_LABEL_PT = 8.0

# Kind of action, how it is named in the bar, time [s].
_Segment = tuple[str, str, float]


def draw_stage_times(axes: Axes, plan: Plan, measured: Measured | None = None) -> None:
    """Draw one microbatch as one bar a card, device 0 on top.

    A bar is F and B of each stage of the card, first to last, or F, I and W where the
    backward is split; where only some are, all of them, each as often as the order
    has it. With a run each card has two bars, predicted above measured in faded
    colours. The bottleneck is marked, the measured one if there is a run.

    Args:
        axes: Empty axes.
        plan: The plan.
        measured: What a run measured, if there is one.
    """
    groups = [(predicted_parts(plan), 1.0)]
    if measured:
        groups.append((measured_parts(plan, measured), _MEASURED_ALPHA))
    longest_s = max(max(card_times_s(plan, parts)) for parts, _ in groups)
    unit, second = unit_for_seconds(longest_s)
    room = 1.22 if is_wide(axes) else 1.42
    axes.set_xlim(0, (longest_s / second or 1.0) * room)

    judged = groups[-1][0]
    judged_s = card_times_s(plan, judged)
    slow = bottleneck(judged_s)
    height = 0.76 / len(groups)
    for number, (parts, alpha) in enumerate(groups):
        for row, card in enumerate(plan.cards):
            y = row + (number - (len(groups) - 1) / 2) * height
            segments = _segments(card, parts)
            _draw_bar(axes, y, segments, height=height, second=second, alpha=alpha)
            is_marked = row == slow and parts is judged
            _label_bar(axes, y, _total_s(segments), second, is_marked)

    is_mean = any({"B", "W"} <= set(one) for one in judged)
    axes.set_xlabel(f"{'mean ' if is_mean else ''}time of one microbatch [{unit}]")
    set_rows(axes, [(card.title, card.device) for card in plan.cards])
    plain_axes(axes, grid="x")
    set_finding(axes, stage_times_finding(plan, measured))
    handles: list[Artist] = [
        Patch(color=ACTION_COLORS[k], label=ACTION_TITLES[k]) for k in all_kinds(judged)
    ]
    if measured:
        handles.append(Patch(color=INK, alpha=_MEASURED_ALPHA, label="faded: measured"))
    label = f"{'measured mean' if measured else 'mean'} of the cards"
    handles.append(_draw_mean(axes, judged_s, second, label))
    legend_below(axes, handles)


def _segments(card: CardPlan, parts: Sequence[Parts]) -> list[_Segment]:
    """What a card does for one microbatch; of several stages, each with its number."""
    several = len(card.stages) > 1
    return [
        (kind, f"{stage}{kind}" if several else kind, time_s)
        for stage in card.stages
        for kind, time_s in parts[stage].items()
    ]


def _total_s(segments: Sequence[_Segment]) -> float:
    return sum(time_s for _, _, time_s in segments)


def _draw_mean(
    axes: Axes, times_s: Sequence[float], second: float, label: str
) -> Artist:
    mean_s = sum(times_s) / len(times_s)
    return axes.axvline(
        mean_s / second,
        color=INK,
        linewidth=1,
        linestyle=(0, (4, 3)),
        label=label,
        zorder=0.9,  # behind the bars, or it would strike out what is written there
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
    segments: Sequence[_Segment],
    *,
    height: float,
    second: float,
    alpha: float,
) -> None:
    left = 0.0
    if alpha < 1:  # keep the grid from showing through
        axes.barh(y, _total_s(segments) / second, height, color=PAPER)
    for kind, name, time_s in segments:
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
        room_pt = width / axes.get_xlim()[1] * axis_width_pt(axes)
        for text in (f"{name} {format_seconds(time_s)}", name):
            if room_pt > 0.62 * _LABEL_PT * len(text) + 4:
                axes.text(
                    left + width / 2,
                    y,
                    text,
                    ha="center",
                    va="center",
                    fontsize=_LABEL_PT,
                    color=text_color_on(ACTION_COLORS[kind]) if alpha == 1.0 else INK,
                )
                break
        left += width


def _label_bar(
    axes: Axes, y: float, total_s: float, second: float, is_bottleneck: bool
) -> None:
    text = format_seconds(total_s)
    if is_bottleneck:
        word = " bottleneck" if is_wide(axes) else ""  # the title says it, too
        text = f"\N{BLACK LEFT-POINTING TRIANGLE} {text}{word}"
    axes.annotate(
        text,
        (total_s / second, y),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        color=BOTTLENECK_COLOR if is_bottleneck else INK,
        fontweight="bold" if is_bottleneck else "normal",
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.8},
    )
