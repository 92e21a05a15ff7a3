"""Figures: loss and gradient norm over the steps of a run."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from planner.report.colors import EVALUATION_COLOR, SERIES_COLOR
from planner.report.drawing import plain_axes, set_finding
from planner.report.findings import grad_norm_finding, loss_finding
from planner.run_record import StepMetrics

_MOST_MARKERS = 60


def draw_training(
    loss_axes: Axes, grad_norm_axes: Axes, metrics: Sequence[StepMetrics]
) -> None:
    """Draw loss and gradient norm over steps.

    A step whose value is not finite leaves a gap in its line; the title names it.

    Args:
        loss_axes: Empty axes for the loss.
        grad_norm_axes: Empty axes for the gradient norm.
        metrics: One entry a step, at least one.
    """
    losses = [entry.loss for entry in metrics]
    _draw_series(loss_axes, metrics, losses, "loss [nats a token]")
    _draw_evaluations(loss_axes, metrics)
    set_finding(loss_axes, loss_finding(metrics))
    norms = [entry.grad_norm for entry in metrics]
    _draw_series(grad_norm_axes, metrics, norms, "gradient norm")
    set_finding(grad_norm_axes, grad_norm_finding(metrics))
    loss_axes.set_xlabel("")


def _draw_evaluations(axes: Axes, metrics: Sequence[StepMetrics]) -> None:
    """Mark the loss of evaluations, where there were any."""
    found = [
        (x.step, x.eval_loss)
        for x in metrics
        if x.eval_loss is not None and math.isfinite(x.eval_loss)
    ]
    if not found:
        return
    axes.plot(
        *zip(*found, strict=True),
        color=EVALUATION_COLOR,
        linewidth=1.2,
        linestyle="--",
        marker="D",
        markersize=5,
        label="evaluation",
    )
    axes.legend(frameon=False)


def _draw_series(
    axes: Axes, metrics: Sequence[StepMetrics], values: Sequence[float], label: str
) -> None:
    few = len(values) <= _MOST_MARKERS
    axes.plot(
        [entry.step for entry in metrics],
        values,
        color=SERIES_COLOR,
        linewidth=1.6,
        marker="o" if few else None,
        markersize=4,
    )
    axes.set(xlabel="step", ylabel=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    plain_axes(axes, grid="y")
