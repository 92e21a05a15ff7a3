"""A finished run for the terminal: what was predicted beside what was measured."""

from collections.abc import Callable, Sequence
from typing import Any

from planner.plan import CardPlan
from planner.run_record import RunRecord, StepMetrics
from planner.table import format_table
from planner.units import format_bytes, format_seconds

_HEADER = ("stage", "F", "B", "peak memory")


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
        measured = record.measured
        rows = [
            (
                f"{stage.index} on {stage.device}",
                _pair(format_seconds, stage.predicted.forward_s, found.forward_s),
                _pair(format_seconds, stage.predicted.backward_s, found.backward_s),
                _memory(card, stage.index, found.peak_bytes),
            )
            for stage, card, found in zip(
                record.plan.stages,
                record.plan.card_of_stage,
                measured.stages,
                strict=True,
            )
        ]
        parts.append(f"predicted / measured\n{format_table(_HEADER, rows)}")
        parts.append(
            f"step time: {format_seconds(record.plan.predicted.step_s)} predicted, "
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


def _memory(card: CardPlan, stage: int, peak_bytes: int) -> str:
    """Of the card of a stage, with the first of its stages."""
    if stage != card.stages[0]:
        return f"with stage {card.stages[0]}"
    return _pair(format_bytes, card.memory_bytes.total, peak_bytes)


def _pair(write: Callable[[Any], str], first: float, second: float) -> str:
    return f"{write(first)} / {write(second)}"
