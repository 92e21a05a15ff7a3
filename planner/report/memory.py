"""Figure: what occupies each card at its fullest moment, against its capacity."""

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from planner.plan import CardPlan, Plan
from planner.report.colors import (
    CAPACITY_COLOR,
    FAINT,
    INK,
    MEMORY_COLORS,
    MEMORY_TITLES,
    PAPER,
)
from planner.report.drawing import (
    is_wide,
    legend_below,
    plain_axes,
    set_finding,
)
from planner.report.findings import memory_finding, peaks_bytes
from planner.report.stage_times import set_rows
from planner.run_record import Measured
from planner.units import format_bytes, unit_for_bytes

_BAR = 0.56
_HATCH = "////"
# A capacity further out than this many times the fullest stage is named in words,
# or the bars would be slivers (a tiny model on a host with much memory).
_FARTHEST = 3.0


def draw_memory(axes: Axes, plan: Plan, measured: Measured | None = None) -> None:
    """Draw the memory of each card, stacked by item, the first on top.

    The reserve is hatched and comes last, so that the items before it end where the
    measured peak of the card's own bytes should be; that is marked with a diamond.

    Args:
        axes: Empty axes.
        plan: The plan.
        measured: What a run measured, if there is one.
    """
    needs = [card.memory_bytes.total for card in plan.cards]
    peaks = peaks_bytes(plan, measured) if measured else ()
    fullest = max([*needs, *peaks, 1])
    near = [c for c in _capacities(plan) if c <= _FARTHEST * fullest]
    unit, size = unit_for_bytes(max([fullest, *near]))
    room = 1.16 if is_wide(axes) else 1.3
    axes.set_xlim(0, max([fullest * room, *(c * 1.03 for c in near)]) / size)

    for card in plan.cards:
        _draw_stack(axes, card, size)
        if card.capacity_bytes in near:
            _draw_capacity(axes, card, size)
        _label_total(axes, card, size)
    if peaks:
        axes.plot(
            [peak / size for peak in peaks],
            range(len(peaks)),
            linestyle="none",
            marker="D",
            markersize=6,
            color=INK,
            markeredgecolor=PAPER,
            label="measured peak, without the reserve",
            zorder=4,
        )

    far = sorted({c for c in _capacities(plan) if c not in near})
    beyond = f"; capacity {', '.join(map(format_bytes, far))} is beyond" if far else ""
    axes.set_xlabel(f"predicted memory [{unit}]{beyond}")
    set_rows(axes, [(card.title, card.device) for card in plan.cards])
    plain_axes(axes, grid="x")
    set_finding(axes, memory_finding(plan, measured))
    legend_below(axes, _legend(plan, has_capacity=bool(near), has_peaks=bool(peaks)))


def _capacities(plan: Plan) -> list[int]:
    """All that are known."""
    return [card.capacity_bytes for card in plan.cards if card.capacity_bytes]


def _draw_stack(axes: Axes, card: CardPlan, size: int) -> None:
    left = 0.0
    for item, num_bytes in card.memory_bytes.items().items():
        if not num_bytes:
            continue
        is_reserve = item == "overhead"
        axes.barh(
            card.index,
            num_bytes / size,
            _BAR,
            left=left,
            facecolor="none" if is_reserve else MEMORY_COLORS[item],
            edgecolor=FAINT if is_reserve else PAPER,
            linewidth=0.7,
            hatch=_HATCH if is_reserve else None,
            label=item,
        )
        left += num_bytes / size


def _draw_capacity(axes: Axes, card: CardPlan, size: int) -> None:
    capacity = card.capacity_bytes / size
    axes.vlines(
        capacity,
        card.index - 0.42,
        card.index + 0.42,
        color=CAPACITY_COLOR,
        linewidth=2,
        zorder=3,
    )


def _label_total(axes: Axes, card: CardPlan, size: int) -> None:
    """The total above the end of its bar, where no other bar or line is."""
    total = card.memory_bytes.total
    text = format_bytes(total)
    if not card.fits:
        text += f", {format_bytes(card.excess_bytes)} too much"
    axes.annotate(
        text,
        (total / size, card.index - _BAR / 2),
        xytext=(-3, 1.5),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=8,
        fontweight="normal" if card.fits else "bold",
        color=INK,
        # Where the card does not fit, its capacity would strike the text out.
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.4},
        zorder=4,
    )


def _legend(plan: Plan, *, has_capacity: bool, has_peaks: bool) -> Sequence[Artist]:
    used = {
        item
        for card in plan.cards
        for item, num_bytes in card.memory_bytes.items().items()
        if num_bytes
    }
    handles: list[Artist] = []
    for item, color in MEMORY_COLORS.items():
        if item in used and item != "overhead":
            handles.append(Patch(facecolor=color, label=MEMORY_TITLES[item]))
        elif item in used:
            reserve = Patch(facecolor="none", edgecolor=FAINT, hatch=_HATCH)
            reserve.set_label(MEMORY_TITLES[item])
            handles.append(reserve)
    if has_capacity:
        handles.append(_mark("|", 10, 2, "capacity"))
    if has_peaks:
        handles.append(_mark("D", 6, 0, "measured peak"))
    return handles


def _mark(marker: str, size: float, width: float, label: str) -> Line2D:
    return Line2D(
        [],
        [],
        linestyle="none",
        color=INK,
        marker=marker,
        markersize=size,
        markeredgewidth=width,
        label=label,
    )
