"""What each picture shows, in one sentence: the title of a figure or a text."""

import math
from collections.abc import Sequence

from planner.plan import CardPlan, Plan
from planner.report.loads import (
    above_mean,
    bottleneck,
    card_times_s,
    measured_parts,
    predicted_parts,
)
from planner.report.spans import Spans, bubble_fraction, makespan_s
from planner.run_record import Measured, StepMetrics
from planner.units import format_bytes, format_percent, format_seconds


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
    """Which card the others wait for, and by how much.

    Args:
        plan: The plan.
        measured: What a run measured, if there is one.

    Returns:
        One sentence without a full stop; a card is named by its stages.
    """
    times_s = card_times_s(plan, predicted_parts(plan))
    real_s = card_times_s(plan, measured_parts(plan, measured)) if measured else ()
    judged_s = real_s or times_s
    expected, found = bottleneck(times_s), bottleneck(judged_s)
    time = f"{format_seconds(max(times_s))} a microbatch predicted"
    if real_s:
        time += f", {format_seconds(max(real_s))} measured"
    if len(times_s) == 1:
        return f"One {_unit(plan)}: {time}"
    if found is None:
        return f"All {_unit(plan)}s take equally long: {time}"
    above = f"{100 * above_mean(judged_s):.0f} % above the mean"
    if found == expected:
        return f"{_is(plan.cards[found])} the bottleneck: {time}, {above}"
    unlike = (
        "where none was predicted"
        if expected is None
        else f"not {plan.cards[expected].title} as predicted"
    )
    return (
        f"{_is(plan.cards[found])} the measured bottleneck, {unlike}: "
        f"{format_seconds(max(real_s))} a microbatch, {above}"
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
    many = len(fullest.stages) > 1
    if not capacity:
        verb = "need" if many else "needs"
        finding = (
            f"{fullest.title.capitalize()} {verb} most: {format_bytes(need)} predicted"
        )
    elif fullest.fits:
        finding = (
            f"Every {_unit(plan)} fits; {_is(fullest, begins=False)} the fullest with "
            f"{format_bytes(need)} of {format_bytes(capacity)} predicted"
        )
    else:
        does, it = ("do", "they need") if many else ("does", "it needs")
        finding = (
            f"{fullest.title.capitalize()} {does} not fit: {it} {format_bytes(need)} "
            f"of {format_bytes(capacity)}, {format_bytes(need - capacity)} too much"
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
    evaluated = [x.eval_loss for x in metrics if x.eval_loss is not None]
    more = f", {evaluated[-1]:.4g} in the last evaluation" if evaluated else ""
    if len(metrics) == 1:
        return f"Loss is {last.loss:.4g} after one step{more}"
    verb = "falls" if last.loss < first.loss else "rises"
    if last.loss == first.loss:
        return f"Loss stays at {last.loss:.4g} over {len(metrics)} steps{more}"
    return (
        f"Loss {verb} from {first.loss:.4g} to {last.loss:.4g} in {len(metrics)} "
        f"steps{more}"
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


def _unit(plan: Plan) -> str:
    """What the rows of a plan are: stages, as long as every card has one."""
    return "stage" if len(plan.cards) == plan.num_stages else "card"


def _is(card: CardPlan, *, begins: bool = True) -> str:
    """`Stage 1 is`, or `Stages 0, 3 are`."""
    name = card.title.capitalize() if begins else card.title
    return f"{name} {'is' if len(card.stages) == 1 else 'are'}"


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
