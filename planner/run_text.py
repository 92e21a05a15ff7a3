"""A finished run for the terminal: what was predicted beside what was measured."""

from collections.abc import Callable, Sequence
from string import digits
from typing import Any

from planner.plan import CardPlan, Plan, StagePlan
from planner.run_record import Measured, MeasuredStage, RunRecord, StepMetrics
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
        measured = record.measured
        parts.append(f"predicted / measured\n{_table(record.plan, measured)}")
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
    evaluated = [x for x in metrics if x.eval_loss is not None]
    if evaluated:
        last = evaluated[-1]
        parts.append(
            f"evaluation: loss {last.eval_loss:.4f}, perplexity "
            f"{last.eval_perplexity:.4g} after step {last.step}"
        )
    return "\n".join(parts)


def _table(plan: Plan, measured: Measured) -> str:
    """One row a stage, one column for each kind of action that any stage does."""
    # Such as `2F`: an action without its microbatch.
    done = {name.rstrip(digits) for row in plan.schedule.actions for name in row}
    kinds = [k for k in "FBIW" if any(f"{s.index}{k}" in done for s in plan.stages)]
    rows = []
    for stage, card, found in zip(
        plan.stages, plan.card_of_stage, measured.stages, strict=True
    ):
        times = _times(stage, found)
        cells = [times[k] if f"{stage.index}{k}" in done else "-" for k in kinds]
        memory = _memory(card, stage.index, found.peak_bytes)
        rows.append((f"{stage.index} on {stage.device}", *cells, memory))
    return format_table(("stage", *kinds, "peak memory"), rows)


def _times(stage: StagePlan, found: MeasuredStage) -> dict[str, str]:
    own = stage.predicted
    pairs = {
        "F": (own.forward_s, found.forward_s),
        "B": (own.backward_s, found.backward_s),
        "I": (own.input_grad_s, found.input_grad_s),
        "W": (own.weight_grad_s, found.weight_grad_s),
    }
    return {kind: _pair(format_seconds, *pair) for kind, pair in pairs.items()}


def _memory(card: CardPlan, stage: int, peak_bytes: int) -> str:
    """Of the card of a stage, with the first of its stages."""
    if stage != card.stages[0]:
        return f"with stage {card.stages[0]}"
    return _pair(format_bytes, card.own_bytes, peak_bytes)


def _pair(write: Callable[[Any], str], first: float, second: float) -> str:
    return f"{write(first)} / {write(second)}"
