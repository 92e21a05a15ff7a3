"""A finished run for the terminal: what was predicted beside what was measured."""

from collections.abc import Callable, Sequence
from typing import Any

from planner.plan import Plan, StagePlan
from planner.run_record import MeasuredStage, RunRecord, StepMetrics
from planner.table import format_table
from planner.units import format_bytes, format_seconds


def describe_run(record: RunRecord, metrics: Sequence[StepMetrics]) -> str:
    """Write what a run did.

    Args:
        record: Of the run.
        metrics: One entry a step.

    Returns:
        A table of stages, predicted / measured, and lines on step time and loss;
        without a newline at the end.
    """
    parts = []
    if record.measured is not None:
        measured, plan = record.measured, record.plan
        times = [
            _times(stage, found, _kinds(plan, stage))
            for stage, found in zip(plan.stages, measured.stages, strict=True)
        ]
        kinds = [kind for kind in "FBIW" if any(kind in cells for cells in times)]
        rows = [
            (
                f"{stage.index} on {stage.device}",
                *(cells.get(kind, "-") for kind in kinds),
                _memory(plan, stage.index, found.peak_bytes),
            )
            for stage, found, cells in zip(
                plan.stages, measured.stages, times, strict=True
            )
        ]
        table = format_table(("stage", *kinds, "peak memory"), rows)
        parts.append(f"predicted / measured\n{table}")
        parts.append(
            f"step time: {format_seconds(plan.predicted.step_s)} predicted, "
            f"{format_seconds(measured.step_s)} measured "
            f"({measured.tokens_per_s:.0f} tokens/s)"
        )
    if len(metrics) == 1:
        parts.append(f"loss: {metrics[0].loss:.4f} in the only step")
    elif metrics:
        parts.append(
            f"loss: {metrics[0].loss:.4f} in step {metrics[0].step}, "
            f"{metrics[-1].loss:.4f} in step {metrics[-1].step}"
        )
    return "\n".join(parts)


def _kinds(plan: Plan, stage: StagePlan) -> str:
    """Which kinds of actions the order has for a stage; F and B without an order."""
    names = [name for row in plan.schedule.actions for name in row]
    begins = {kind: f"{stage.index}{kind}" for kind in "FBIW"}
    done = (k for k, b in begins.items() if any(name.startswith(b) for name in names))
    return "".join(done) or "FB"


def _times(stage: StagePlan, found: MeasuredStage, done: str) -> dict[str, str]:
    """One cell for each kind that the stage does, by kind."""
    own = stage.predicted
    pairs = {
        "F": (own.forward_s, found.forward_s),
        "B": (own.backward_s, found.backward_s),
        "I": (own.input_grad_s, found.input_grad_s),
        "W": (own.weight_grad_s, found.weight_grad_s),
    }
    return {kind: _pair(format_seconds, *pairs[kind]) for kind in done}


def _memory(plan: Plan, stage: int, peak_bytes: int) -> str:
    """Of the card of a stage, with the first of its stages."""
    card = plan.card_of(stage)
    if stage != card.stages[0]:
        return f"with stage {card.stages[0]}"
    return _pair(format_bytes, card.memory_bytes.total, peak_bytes)


def _pair(write: Callable[[Any], str], first: float, second: float) -> str:
    return f"{write(first)} / {write(second)}"
