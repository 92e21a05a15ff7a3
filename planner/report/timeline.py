"""Figure: one step to scale, one bar an action, predicted above measured."""

from collections import defaultdict
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from planner.report.colors import (
    ACTION_COLORS,
    ACTION_TITLES,
    BUBBLE,
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
from planner.report.findings import timeline_finding
from planner.report.spans import Spans, device_bubbles, makespan_s, stages_of_devices
from planner.units import format_percent, format_seconds, unit_for_seconds

_BAR = 0.84
_GAP_ROWS = 1.1  # between predicted and measured: room for a heading
_NAME_PT = 7.0
# Upright a bar is high enough for a name such as 12 or 3F12.
_UPRIGHT_PT = 6.0
_UPRIGHT_LETTERS = range(2, 5)
# Above this many bars the picture of them is smaller than their description.
_MOST_VECTOR_BARS = 1500


def draw_timeline(axes: Axes, predicted: Spans, measured: Spans = ()) -> None:
    """Draw when every action of one step runs, device 0 on top.

    Both timelines share the time axis. Bubbles stay visible as the pale strip under
    the bars, their share stands at the end of each row. Where there is room, a bar
    carries its microbatch number; on a device with several stages, its whole name.

    Args:
        axes: Empty axes.
        predicted: One span an action, at least one.
        measured: The same of a run; empty without one.
    """
    groups = [("predicted", predicted)]
    if measured:
        groups.append(("measured", measured))
    num_devices = 1 + max(span.device for _, spans in groups for span in spans)
    unit, second = unit_for_seconds(max(span.end_s for _, s in groups for span in s))
    axes.set_xlim(0, max(span.end_s for _, s in groups for span in s) / second or 1.0)

    ticks: dict[float, str] = {}
    boxes: dict[str, list[_Box]] = defaultdict(list)
    for number, (heading, spans) in enumerate(groups):
        top = number * (num_devices + _GAP_ROWS)
        stages = stages_of_devices(spans)
        ticks |= {top + d: _row_name(held) for d, held in stages.items()}
        _head(axes, top, heading, spans)
        _draw_strips(axes, top, spans, second)
        _write_bubbles(axes, top, spans, num_devices)
        for span in spans:
            start, end = span.start_s / second, span.end_s / second
            several = len(stages[span.device]) > 1
            name = str(span.action if several else span.action.microbatch)
            box = (start, end, top + span.device, name)
            boxes[span.action.kind].append(box)
    for kind, kind_boxes in boxes.items():
        _draw_bars(axes, kind, kind_boxes)
    if measured or len(predicted) <= _MOST_VECTOR_BARS:
        _name_bars(axes, boxes)

    bottom = (len(groups) - 1) * (num_devices + _GAP_ROWS) + num_devices
    axes.set_ylim(bottom - 0.4, -1.15)
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.set_xlabel(f"time since the first F [{unit}]")
    plain_axes(axes, grid="x")
    set_finding(
        axes,
        timeline_finding(
            predicted,
            measured,
            num_devices=num_devices,
            num_microbatches=1 + max(span.action.microbatch for span in predicted),
        ),
    )
    legend_below(axes, _legend(boxes))


# Start and end in the unit of the axis, row, name.
_Box = tuple[float, float, float, str]


def _row_name(stages: Sequence[int]) -> str:
    word = "stage" if len(stages) == 1 else "stages"
    return f"{word} {', '.join(map(str, stages))}"


def _head(axes: Axes, top: float, heading: str, spans: Spans) -> None:
    axes.text(
        0,
        top - 0.52,
        f"{heading}, {format_seconds(makespan_s(spans))}",
        va="bottom",
        fontsize=8,
        color=INK,
    )


def _draw_strips(axes: Axes, top: float, spans: Spans, second: float) -> None:
    """One pale strip a device over the whole makespan: what stays pale is bubble."""
    start = min(span.start_s for span in spans) / second
    width = makespan_s(spans) / second
    for device in {span.device for span in spans}:
        y = top + device - _BAR / 2
        axes.broken_barh(
            [(start, width)], (y, _BAR), facecolor=BUBBLE, edgecolor="none", zorder=0.5
        )


def _write_bubbles(axes: Axes, top: float, spans: Spans, num_devices: int) -> None:
    """The bubble of each device in a column right of the axes."""
    column = [("bubble", top - 0.52, "bottom")]
    for device, share in enumerate(device_bubbles(spans, num_devices)):
        column.append((format_percent(share), top + device, "center_baseline"))
    for text, y, at in column:
        axes.annotate(
            text,
            (1.0, y),
            xycoords=axes.get_yaxis_transform(),
            xytext=(4, 0),
            textcoords="offset points",
            va=at,
            fontsize=8,
            color=INK,
        )


def _draw_bars(axes: Axes, kind: str, boxes: Sequence[_Box]) -> None:
    half = _BAR / 2
    corners = [
        [(start, y - half), (end, y - half), (end, y + half), (start, y + half)]
        for start, end, y, _ in boxes
    ]
    unit_pt = axis_width_pt(axes) / axes.get_xlim()[1]
    bars = PolyCollection(
        corners,
        facecolor=ACTION_COLORS[kind],
        edgecolor=PAPER,
        # An edge parts bars of one colour, but would eat up a thin one.
        linewidth=[min(0.5, unit_pt * (end - start) / 6) for start, end, _, _ in boxes],
        label=ACTION_TITLES[kind],
    )
    bars.set_rasterized(len(boxes) > _MOST_VECTOR_BARS)
    axes.add_collection(bars, autolim=False)


def _name_bars(axes: Axes, boxes: dict[str, list[_Box]]) -> None:
    """Along the bar where that fits, else upright where that does."""
    unit_pt = axis_width_pt(axes) / axes.get_xlim()[1]
    for kind, kind_boxes in boxes.items():
        color = text_color_on(ACTION_COLORS[kind])
        for start, end, y, name in kind_boxes:
            width_pt = (end - start) * unit_pt
            is_along = width_pt >= 0.65 * _NAME_PT * len(name) + 3
            if not is_along and (
                width_pt < _UPRIGHT_PT + 2 or len(name) not in _UPRIGHT_LETTERS
            ):
                continue
            written = axes.text(
                (start + end) / 2,
                y,
                name,
                ha="center",
                va="center_baseline" if is_along else "center",
                rotation=0 if is_along else 90,
                fontsize=_NAME_PT if is_along else _UPRIGHT_PT,
                color=color,
                clip_on=True,
            )
            written.set_in_layout(False)  # it is inside its bar: nothing to lay out


def _legend(boxes: dict[str, list[_Box]]) -> list[Patch]:
    kinds = [kind for kind in ACTION_COLORS if kind in boxes]
    handles = [Patch(color=ACTION_COLORS[k], label=ACTION_TITLES[k]) for k in kinds]
    return [*handles, Patch(color=BUBBLE, label="bubble")]
