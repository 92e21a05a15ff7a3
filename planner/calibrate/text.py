"""A calibration as a person reads it: what moved, and what that does to the plan."""

from collections.abc import Sequence

from planner.calibrate.moved import Moved
from planner.plan import Plan
from planner.table import format_table
from planner.units import format_bytes, format_percent, format_seconds

# Smaller differences of step times are those of rounding.
_SAME = 1e-6


def describe_calibration(moved: Sequence[Moved]) -> str:
    """Write what was predicted beside what was measured.

    Args:
        moved: Of a calibration.

    Returns:
        A table; without a newline at the end.
    """
    header = ("calibration", "predicted", "measured", "moves")
    return format_table(header, [_row(entry) for entry in moved])


def describe_change(
    before: Plan,
    after: Plan,
    *,
    measured_s: float,
    again_s: float | None,
    excess_bytes: int = 0,
) -> str:
    """Say whether a calibration changes the plan, and what the change gains.

    Args:
        before: The run's plan.
        after: What was found with the calibrated profile.
        measured_s: Step time of the run [s].
        again_s: Step time of the run's plan with the calibrated profile, on the
            cards of the new one; None if that does other work [s].
        excess_bytes: What its fullest device lacks there; 0 or less if it fits
            [bytes].

    Returns:
        Two to four lines; without a newline at the end.
    """
    was = (
        f"the run's plan: {format_seconds(before.predicted.step_s)} a step predicted, "
        f"{format_seconds(measured_s)} measured"
    )
    now = f"{format_seconds(after.predicted.step_s)} a step"
    if again_s is None:
        return (
            f"{was}\nnot compared: the run was of {_work(before)}, "
            f"this plan is of {_work(after)}, {now}"
        )
    was += f", {format_seconds(again_s)} with the calibrated profile"
    if _same_plan(before, after):
        return f"{was}\nthe plan stays as it was"
    if excess_bytes > 0:
        was += f"; it does not fit: {format_bytes(excess_bytes)} missing"
    old, new = _summary(before, after), _summary(after, before)
    becomes = f"{old} becomes {new}" if old != new else f"{new} in another order"
    gain = 1 - after.predicted.step_s / again_s if again_s else 0.0
    lines = [
        was,
        f"the plan changes: {becomes}",
        f"{now} in place of {format_seconds(again_s)}, {_percent(gain)}",
    ]
    if gain < -_SAME and excess_bytes <= 0:
        lines.append("the run's plan is quicker: raise --time-limit, or keep it")
    return "\n".join(lines)


def _row(entry: Moved) -> tuple[str, str, str, str]:
    write = format_bytes if entry.unit == "bytes" else format_seconds
    return entry.what, write(entry.predicted), write(entry.measured), _moves(entry)


def _moves(entry: Moved) -> str:
    if entry.unit == "bytes":
        above = entry.measured - entry.predicted
        if above > 0:
            return f"+ {format_bytes(above)}"
        return f"{format_bytes(-above)} below" if above else "nothing"
    if entry.factor is None:
        return "not predicted" if entry.measured else "nothing"
    return f"x {entry.factor:.3f}"


def _same_plan(before: Plan, after: Plan) -> bool:
    """Whether two plans do the same work in the same way."""

    def essence(plan: Plan) -> tuple[object, ...]:
        stages = [(s.layers, set(s.recompute)) for s in plan.stages]
        size = plan.schedule.microbatch_size
        return stages, plan.schedule.actions, size, plan.optimizer.name

    return essence(before) == essence(after)


def _summary(plan: Plan, other: Plan) -> str:
    """Such as `1f1b with 4+4 layers, 2 recomputed`; the rest where it differs."""
    counts = "+".join(str(len(stage.layers)) for stage in plan.stages)
    parts = [f"{plan.schedule.name} with {counts} layers"]
    if num_again := sum(len(stage.recompute) for stage in plan.stages):
        parts.append(f"{num_again} recomputed")
    size = plan.schedule.microbatch_size
    if size != other.schedule.microbatch_size:
        parts.append(f"microbatches of {size}")
    if plan.optimizer.name != other.optimizer.name:
        parts.append(plan.optimizer.name)
    return ", ".join(parts)


def _work(plan: Plan) -> str:
    return f"{plan.global_batch_size} sequences a step on {plan.num_cards_text}"


def _percent(gain: float) -> str:
    if abs(gain) <= _SAME:
        return "the same time"
    return f"{format_percent(abs(gain))} {'less' if gain > 0 else 'more'}"
