"""The balance and the timeline as plain text, for a terminal and for tests.

This module imports no drawing library.
"""

from collections import defaultdict
from collections.abc import Sequence

from planner.plan import Plan, StagePlan
from planner.report.findings import (
    bottleneck,
    fits,
    measured_times_s,
    memory_finding,
    stage_time_s,
    stage_times_finding,
)
from planner.report.spans import Spans
from planner.run_record import Measured
from planner.units import format_bytes, format_seconds

_BAR_LETTERS = 24


def balance_text(plan: Plan, measured: Measured | None = None) -> str:
    """Time and memory of every stage as a table.

    Args:
        plan: The plan.
        measured: What a run measured, if there is one.

    Returns:
        Lines without a newline at the end; the bottleneck is marked with `<`.
    """
    rows = [["stage", "device", "layers", "F", "B", "F + B", "", "memory", "capacity"]]
    if measured:
        rows[0] += ["measured F + B", "measured peak"]
    times_s = [stage_time_s(stage) for stage in plan.stages]
    longest_s = max(times_s)
    marked = bottleneck(measured_times_s(measured) if measured else times_s)
    for stage, time_s in zip(plan.stages, times_s, strict=True):
        row = _balance_row(
            stage, time_s, longest_s, is_bottleneck=stage.index == marked
        )
        if measured:
            real = measured.stages[stage.index]
            row += [
                format_seconds(real.forward_s + real.backward_s),
                format_bytes(real.peak_bytes),
            ]
        rows.append(row)
    findings = [stage_times_finding(plan, measured), memory_finding(plan, measured)]
    return "\n".join([*_aligned(rows), "", *findings])


def timeline_text(spans: Spans, *, num_columns: int = 96, until_s: float = 0.0) -> str:
    """One step to scale, one line a device.

    Each action begins with its name and fills its time with dashes, a bubble is
    dots: `F0--F1--....B0------`. Where a letter stands for more time than an action
    takes, the action that fills most of it is shown.

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
    stages = defaultdict(set)
    for span in sorted(spans, key=lambda span: span.start_s):
        first, after = (round(t * letters_per_s) for t in (span.start_s, span.end_s))
        width = after - first
        name = f"{span.action.kind}{span.action.microbatch}"
        fill = name if width >= len(name) else span.action.kind
        cells[span.device][first:after] = fill[:width].ljust(width, "-")
        stages[span.device].add(span.action.stage)
    labels = {
        device: "stage " + ",".join(map(str, sorted(held)))
        for device, held in stages.items()
    }
    widest = max(map(len, labels.values()))
    return "\n".join(
        f"{labels[device].ljust(widest)}  {''.join(cells[device])}"
        for device in sorted(cells)
    )


def _balance_row(
    stage: StagePlan, time_s: float, longest_s: float, *, is_bottleneck: bool
) -> list[str]:
    predicted = stage.predicted
    bar = "#" * round(_BAR_LETTERS * time_s / longest_s) if longest_s else ""
    capacity = predicted.capacity_bytes
    return [
        str(stage.index),
        stage.device,
        str(len(stage.layers)),
        format_seconds(predicted.forward_s),
        format_seconds(predicted.backward_s),
        format_seconds(time_s),
        f"{bar} < bottleneck" if is_bottleneck else bar,
        format_bytes(predicted.memory_bytes.total)
        + ("" if fits(stage) else " too much"),
        format_bytes(capacity) if capacity else "-",
    ]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width; all but the bars and the device end at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = {1, 6}
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
