"""Which figures a report has, and how large each is."""

from functools import partial

from matplotlib.figure import Figure

from planner.report.drawing import Picture
from planner.report.findings import (
    grad_norm_finding,
    loss_finding,
    memory_finding,
    stage_times_finding,
    timeline_finding,
)
from planner.report.memory import draw_memory
from planner.report.source import ReportSource
from planner.report.spans import Spans
from planner.report.stage_times import draw_stage_times
from planner.report.timeline import draw_timeline
from planner.report.training import draw_training

_AROUND_IN = 1.35  # title, time axis and legend


def balance_pictures(source: ReportSource) -> tuple[Picture, ...]:
    """Time and memory of every card.

    Args:
        source: What the report is about.

    Returns:
        Two figures, not yet drawn.
    """
    plan, measured = source.plan, source.measured
    return (
        Picture(
            name="stage_times",
            finding=stage_times_finding(plan, measured),
            height_in=_AROUND_IN + plan.num_devices * (0.6 if measured else 0.45),
            draw=lambda figure: draw_stage_times(figure.subplots(), plan, measured),
        ),
        Picture(
            name="memory",
            finding=memory_finding(plan, measured),
            height_in=_AROUND_IN + plan.num_devices * 0.55,
            draw=lambda figure: draw_memory(figure.subplots(), plan, measured),
        ),
    )


def timeline_picture(
    source: ReportSource, predicted: Spans, measured: Spans
) -> Picture:
    """One step to scale.

    Args:
        source: What the report is about.
        predicted: One span an action, at least one.
        measured: The same of a run; empty without one.

    Returns:
        The figure, not yet drawn.
    """
    num_devices = source.plan.num_devices
    num_groups = 2 if measured else 1
    return Picture(
        name="timeline",
        finding=timeline_finding(
            predicted,
            measured,
            num_devices=num_devices,
            num_microbatches=source.plan.schedule.num_microbatches,
        ),
        height_in=_AROUND_IN + num_groups * (0.26 * num_devices + 0.3),
        draw=lambda figure: draw_timeline(figure.subplots(), predicted, measured),
    )


def training_picture(source: ReportSource) -> Picture:
    """Loss and gradient norm over the steps.

    Args:
        source: A run with at least one step.

    Returns:
        The figure, not yet drawn.
    """
    metrics = source.metrics
    return Picture(
        name="training",
        finding=f"{loss_finding(metrics)}. {grad_norm_finding(metrics)}",
        height_in=4.6,
        draw=partial(_draw_training, source=source),
    )


def _draw_training(figure: Figure, source: ReportSource) -> None:
    above, below = figure.subplots(2, 1, sharex=True)
    draw_training(above, below, source.metrics)
