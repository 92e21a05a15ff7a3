"""The balance and the timeline as plain text, for a terminal and for tests.

This module imports no drawing library.
"""

from collections.abc import Sequence

from planner.plan import CardPlan, Plan
from planner.report.findings import memory_finding, peaks_bytes, stage_times_finding
from planner.report.loads import (
    all_kinds,
    bottleneck,
    card_times_s,
    measured_parts,
    predicted_parts,
    stage_times_s,
)
from planner.report.spans import Spans, stages_of_devices
from planner.run_record import Measured
from planner.units import format_bytes, format_seconds

_BAR_LETTERS = 16


def balance_text(plan: Plan, measured: Measured | None = None) -> str:
    """Time and memory of every stage as a table.

    Args:
        plan: The plan.
        measured: What a run measured, if there is one.

    Returns:
        Lines without a newline at the end; every stage of the bottleneck is marked
        with `<`. Memory, predicted and measured, is without the reserve.
    """
    parts = predicted_parts(plan)
    real = measured_parts(plan, measured) if measured else ()
    times_s, real_s = stage_times_s(parts), stage_times_s(real)
    slow = bottleneck(card_times_s(plan, real or parts))
    marked = () if slow is None else plan.cards[slow].stages
    kinds = all_kinds(parts)
    whole = "in all" if {"B", "W"} <= set(kinds) else " + ".join(kinds)
    rows = [["stage", "device", "layers", *kinds, whole, ""]]
    rows[0] += ["measured"] if measured else []
    rows[0] += ["memory", *(["measured"] if measured else []), "reserve", "capacity"]
    peaks = peaks_bytes(plan, measured) if measured else ()
    cards = plan.card_of_stage
    for stage, one, time_s in zip(plan.stages, parts, times_s, strict=True):
        bar = _bar(time_s, max(times_s))
        mark = " < bottleneck" if stage.index in marked else ""
        row = [str(stage.index), stage.device, str(len(stage.layers))]
        row += [format_seconds(one[kind]) if kind in one else "-" for kind in kinds]
        row += [format_seconds(time_s), bar + mark]
        if measured:
            row.append(format_seconds(real_s[stage.index]))
        row += _memory_cells(cards[stage.index], stage.index, peaks)
        rows.append(row)
    findings = [stage_times_finding(plan, measured), memory_finding(plan, measured)]
    lines = _aligned(rows, left={1, rows[0].index("")})
    return "\n".join([*lines, "", *findings])


def timeline_text(spans: Spans, *, num_columns: int = 96, until_s: float = 0.0) -> str:
    """One step to scale, one line a device.

    Each action begins with its name and fills its time with dashes, a bubble is
    dots: `F0--F1--....B0------`. On a device with several stages the name begins
    with the stage: `0F0-3F0-`. An action too short for its name shows only its
    kind, and one shorter than half a letter may vanish.

    Args:
        spans: One span an action, at least one.
        num_columns: How many letters stand for the whole time.
        until_s: End of the time shown, if later than the last action [s].

    Returns:
        Lines without a newline at the end.
    """
    end_s = max([until_s, *(span.end_s for span in spans)])
    letters_per_s = num_columns / end_s if end_s else 0.0
    cells = {span.device: ["."] * num_columns for span in spans}
    stages = stages_of_devices(spans)
    for span in sorted(spans, key=lambda span: span.start_s):
        first, after = (round(t * letters_per_s) for t in (span.start_s, span.end_s))
        width, action = after - first, span.action
        short = f"{action.kind}{action.microbatch}"
        name = str(action) if len(stages[span.device]) > 1 else short
        fill = name if width >= len(name) else action.kind
        cells[span.device][first:after] = fill[:width].ljust(width, "-")
    labels = {
        device: "stage " + ",".join(map(str, held)) for device, held in stages.items()
    }
    widest = max(map(len, labels.values()))
    return "\n".join(
        f"{labels[device].ljust(widest)}  {''.join(cells[device])}"
        for device in sorted(cells)
    )


def _bar(time_s: float, longest_s: float) -> str:
    return "#" * round(_BAR_LETTERS * time_s / longest_s) if longest_s else ""


def _memory_cells(card: CardPlan, stage: int, peaks: Sequence[int]) -> list[str]:
    """Memory of a card, with the first of its stages: its own, measured, reserve."""
    if stage != card.stages[0]:
        return [f"with stage {card.stages[0]}", *([""] if peaks else []), "", ""]
    capacity = format_bytes(card.capacity_bytes) if card.capacity_bytes else "-"
    short = "" if card.fits else f", {format_bytes(card.excess_bytes)} short"
    return [
        format_bytes(card.own_bytes),
        *([format_bytes(peaks[card.index])] if peaks else []),
        format_bytes(card.memory_bytes.overhead),
        capacity + short,
    ]


def _aligned(rows: Sequence[Sequence[str]], *, left: set[int]) -> list[str]:
    """Columns of equal width; all but those in `left` end at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
