"""What each picture shows, in one sentence: the title of a figure or a text."""

import math
from collections.abc import Sequence

from planner.plan import CardPlan, Plan, StagePlan
from planner.report.spans import Spans, bubble_fraction, makespan_s
from planner.run_record import Measured, StepMetrics
from planner.units import format_bytes, format_percent, format_seconds


def stage_time_s(stage: StagePlan) -> float:
    """Predicted F and B of one microbatch.

    Args:
        stage: The stage.

    Returns:
        The time [s].
    """
    return stage.predicted.forward_s + stage.predicted.backward_s


def measured_times_s(measured: Measured) -> tuple[float, ...]:
    """Measured F and B of one microbatch.

    Args:
        measured: Of a run.

    Returns:
        The time of each stage [s].
    """
    return tuple(stage.forward_s + stage.backward_s for stage in measured.stages)


def bottleneck(times_s: Sequence[float]) -> int:
    """The stage that takes longest.

    Args:
        times_s: Of each stage [s].

    Returns:
        Its index, the first of equals.
    """
    return max(range(len(times_s)), key=lambda stage: times_s[stage])


def relative_error(predicted: float, measured: float) -> float | None:
    """How far a prediction is off.

    Args:
        predicted: The predicted number.
        measured: The measured number.

    Returns:
        (predicted - measured) / measured, None if nothing was measured.
    """
    return (predicted - measured) / measured if measured else None


def peaks_bytes(plan: Plan, measured: Measured) -> tuple[int, ...]:
    """Measured peak of every card.

    Args:
        plan: The plan that the run followed.
        measured: What it measured.

    Returns:
        One entry a card; a run of one stage a card may only tell its stages [bytes].
    """
    if measured.devices:
        return tuple(device.peak_bytes for device in measured.devices)
    return tuple(measured.stages[card.stages[0]].peak_bytes for card in plan.cards)


def stage_times_finding(plan: Plan, measured: Measured | None) -> str:
    """Which stage the others wait for, and by how much.

    Args:
        plan: The plan.
        measured: What a run measured, if there is one.

    Returns:
        One sentence without a full stop.
    """
    times_s = [stage_time_s(stage) for stage in plan.stages]
    expected = bottleneck(times_s)
    if measured is None:
        time = f"{format_seconds(times_s[expected])} a microbatch"
        if plan.num_stages == 1:
            return f"One stage: {time} predicted"
        if above := _above_mean(times_s):
            return f"Stage {expected} is the bottleneck: {time} predicted, {above}"
        return f"All stages are equally long: {time} predicted"
    real_s = measured_times_s(measured)
    found = bottleneck(real_s)
    real = format_seconds(real_s[found])
    if plan.num_stages == 1:
        predicted = format_seconds(times_s[0])
        return f"One stage: {predicted} a microbatch predicted, {real} measured"
    above = _above_mean(real_s) or "no more than the mean"
    if found == expected:
        return (
            f"Stage {found} is the bottleneck: {format_seconds(times_s[found])} a "
            f"microbatch predicted, {real} measured, {above}"
        )
    return (
        f"Stage {found} is the measured bottleneck, not stage {expected} as predicted: "
        f"{real} a microbatch, {above}"
    )


def memory_finding(plan: Plan, measured: Measured | None) -> str:
    """Which card is the fullest, and what is left on it.

    Args:
        plan: The plan.
        measured: What a run measured, if there is one.

    Returns:
        One sentence without a full stop.
    """
    fullest = max(plan.cards, key=_fullness)
    need, capacity = fullest.memory_bytes.total, fullest.capacity_bytes
    title, many = fullest.title, len(fullest.stages) > 1
    if not capacity:
        verb = "need" if many else "needs"
        finding = f"{title.capitalize()} {verb} most: {format_bytes(need)} predicted"
    elif fullest.fits:
        finding = (
            f"Every {'card' if many else 'stage'} fits; {title} "
            f"{'are' if many else 'is'} the fullest with {format_bytes(need)} of "
            f"{format_bytes(capacity)} predicted"
        )
    else:
        does, it = ("do", "they need") if many else ("does", "it needs")
        finding = (
            f"{title.capitalize()} {does} not fit: {it} {format_bytes(need)} of "
            f"{format_bytes(capacity)}, {format_bytes(need - capacity)} too much"
        )
    worst = _worst_memory_error(plan, measured)
    return (
        finding if worst is None else f"{finding}; largest error {100 * worst:+.1f} %"
    )


def timeline_finding(
    predicted: Spans, measured: Spans, *, num_devices: int, num_microbatches: int
) -> str:
    """How much of a step is bubble.

    Args:
        predicted: One span an action.
        measured: The same of a run, empty without one.
        num_devices: How many devices there are.
        num_microbatches: Of one step.

    Returns:
        One sentence without a full stop.
    """
    share = format_percent(bubble_fraction(predicted, num_devices))
    long = format_seconds(makespan_s(predicted))
    if not measured:
        return (
            f"{share} bubble predicted: {num_microbatches} microbatches over "
            f"{num_devices} device{'' if num_devices == 1 else 's'} take {long}"
        )
    real_share = format_percent(bubble_fraction(measured, num_devices))
    real_long = format_seconds(makespan_s(measured))
    return (
        f"{share} bubble predicted, {real_share} measured; "
        f"makespan {long} predicted, {real_long} measured"
    )


def loss_finding(metrics: Sequence[StepMetrics]) -> str:
    """Where the loss went.

    Args:
        metrics: At least one step.

    Returns:
        One sentence without a full stop.
    """
    if broken := [entry.step for entry in metrics if not math.isfinite(entry.loss)]:
        return f"Loss is not a finite number at step {broken[0]}"
    first, last = metrics[0], metrics[-1]
    if len(metrics) == 1:
        return f"Loss is {last.loss:.4g} after one step"
    verb = "falls" if last.loss < first.loss else "rises"
    if last.loss == first.loss:
        return f"Loss stays at {last.loss:.4g} over {len(metrics)} steps"
    return (
        f"Loss {verb} from {first.loss:.4g} to {last.loss:.4g} in {len(metrics)} steps"
    )


def grad_norm_finding(metrics: Sequence[StepMetrics]) -> str:
    """How large gradients are.

    Args:
        metrics: At least one step.

    Returns:
        One sentence without a full stop.
    """
    if broken := [
        entry.step for entry in metrics if not math.isfinite(entry.grad_norm)
    ]:
        return f"Gradient norm is not a finite number at step {broken[0]}"
    largest = max(metrics, key=lambda entry: entry.grad_norm)
    return (
        f"Gradient norm ends at {metrics[-1].grad_norm:.3g}; "
        f"largest {largest.grad_norm:.3g} at step {largest.step}"
    )


def _above_mean(times_s: Sequence[float]) -> str:
    """How far the longest is above the mean; nothing below half a percent."""
    mean_s = sum(times_s) / len(times_s)
    above = max(times_s) / mean_s - 1 if mean_s else 0.0
    return f"{100 * above:.0f} % above the mean" if above >= 0.005 else ""


def _fullness(card: CardPlan) -> tuple[float, int]:
    need, capacity = card.memory_bytes.total, card.capacity_bytes
    return (need / capacity if capacity else 0.0, need)


def _worst_memory_error(plan: Plan, measured: Measured | None) -> float | None:
    if measured is None:
        return None
    errors = [
        error
        for card, peak in zip(plan.cards, peaks_bytes(plan, measured), strict=True)
        if (error := relative_error(card.own_bytes, peak)) is not None
    ]
    return max(errors, key=abs, default=None)
