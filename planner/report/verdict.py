"""The answers on top of a report, as short facts."""

from collections import Counter
from dataclasses import dataclass

from planner.plan import Plan
from planner.report.findings import memory_finding, stage_times_finding
from planner.report.loads import (
    bottleneck,
    card_times_s,
    measured_parts,
    predicted_parts,
)
from planner.report.source import ReportSource
from planner.report.spans import Spans, bubble_fraction
from planner.units import format_bytes, format_count, format_percent, format_seconds

_DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One answer.

    Attributes:
        title: What is answered, such as `Step time`.
        value: The answer.
        detail: Where it comes from; may be empty.
    """

    title: str
    value: str
    detail: str = ""


def headline(source: ReportSource) -> str:
    """The whole report in one sentence.

    Args:
        source: What the report is about.

    Returns:
        Such as `my-model on 4 x rtx3090: fits, 1.52 s a step measured`.
    """
    plan, measured = source.plan, source.measured
    step_s = measured.step_s if measured else plan.predicted.step_s
    how = "measured" if measured else "predicted"
    fit = "fits" if all(card.fits for card in plan.cards) else "does not fit"
    step = f"{format_seconds(step_s)} a step {how}"
    return f"{model_name(plan)} on {cards(plan)}: {fit}, {step}"


def verdict(
    source: ReportSource, measured_step: Spans = (), num_tokens: int = 10**9
) -> tuple[Fact, ...]:
    """The answers, most important first.

    Args:
        source: What the report is about.
        measured_step: Spans of the measured step; empty if there are none.
        num_tokens: To say how long training on so many takes.

    Returns:
        Model, cards, fit, step time, tokens, bubble, bottleneck, proof.
    """
    plan = source.plan
    return (
        _model(plan),
        Fact(title="Cards", value=cards(plan), detail=_work(plan)),
        _fit(source),
        _step_time(source),
        _tokens(source, num_tokens),
        _bubble(plan, measured_step),
        _bottleneck(source),
        _proof(plan),
    )


def model_name(plan: Plan) -> str:
    """The model, without the folders before its name.

    Args:
        plan: The plan.

    Returns:
        Such as `SmolLM2-135M-Instruct`.
    """
    return (
        plan.model.id.rstrip("/").split("/")[-1] or plan.model.architecture or "model"
    )


def cards(plan: Plan) -> str:
    """The cards, counted by kind.

    Args:
        plan: The plan.

    Returns:
        Such as `2 x rtx3090, 1 x rtx4090`.
    """
    counts = Counter(name.split(":")[0] for name in plan.used_cards).items()
    times = "\N{MULTIPLICATION SIGN}"
    return ", ".join(f"{count} {times} {kind}" for kind, count in counts)


def _model(plan: Plan) -> Fact:
    count = plan.model.num_parameters
    parts = [
        plan.model.architecture,
        f"{format_count(count)} parameters" if count else "",
        f"revision {plan.model.revision}" if plan.model.revision else "",
        plan.dtype,
    ]
    return Fact(
        title="Model",
        value=model_name(plan),
        detail=", ".join(part for part in parts if part),
    )


def _work(plan: Plan) -> str:
    schedule = plan.schedule
    return (
        f"{_copies(plan)}{schedule.num_microbatches} microbatches of "
        f"{schedule.microbatch_size} \N{MULTIPLICATION SIGN} {plan.seq_len} tokens, "
        f"schedule {schedule.name}, optimizer {plan.optimizer.name}"
    )


def _copies(plan: Plan) -> str:
    return f"{plan.num_copies} copies of the pipeline, each " if plan.copies else ""


def _fit(source: ReportSource) -> Fact:
    plan = source.plan
    detail = memory_finding(plan, source.measured)
    short = [card.excess_bytes for card in plan.cards if not card.fits]
    if short:
        value = f"no, {format_bytes(max(short))} missing"
        return Fact(title="Fits", value=value, detail=detail)
    if not all(card.capacity_bytes for card in plan.cards):
        return Fact(title="Fits", value="capacity not known", detail=detail)
    free = min(-card.excess_bytes for card in plan.cards)
    return Fact(
        title="Fits", value=f"yes, {format_bytes(free)} to spare", detail=detail
    )


def _step_time(source: ReportSource) -> Fact:
    predicted, measured = source.plan.predicted, source.measured
    tie = f"{format_seconds(predicted.tie_s)} tie + " if predicted.tie_s else ""
    copies = predicted.reduce_s
    summing = f"{format_seconds(copies)} sum over copies + " if copies else ""
    parts = (
        f"{format_seconds(predicted.makespan_s)} pipeline + {tie}{summing}"
        f"{format_seconds(predicted.optimizer_s)} optimizer"
    )
    return _number(
        "Step time",
        format_seconds(predicted.step_s),
        format_seconds(measured.step_s) if measured else "",
        detail=parts,
    )


def _tokens(source: ReportSource, num_tokens: int) -> Fact:
    predicted = source.plan.predicted.tokens_per_s
    measured = source.measured.tokens_per_s if source.measured else 0.0
    rate = measured or predicted
    return _number(
        "Tokens a second",
        f"{predicted:,.0f}",
        f"{measured:,.0f}" if measured else "",
        detail=_days(num_tokens, rate) if rate else "",
    )


def _days(num_tokens: int, tokens_per_s: float) -> str:
    days = num_tokens / tokens_per_s / _DAY_S
    # Exactly: a user's own number, not rounded to three digits.
    count = f"{num_tokens / 10**9:g} B" if num_tokens >= 10**9 else f"{num_tokens:,}"
    long = f"{days:,.1f} days" if days >= 1 else f"{days * 24:.2g} hours"
    return f"{long} for {count} tokens"


def _bubble(plan: Plan, measured_step: Spans) -> Fact:
    measured = ""
    if measured_step:
        measured = format_percent(bubble_fraction(measured_step, plan.num_devices))
    return _number(
        "Bubble",
        format_percent(plan.predicted.bubble_fraction),
        measured,
        detail="share of the makespan in which a card computes nothing",
    )


def _bottleneck(source: ReportSource) -> Fact:
    plan, measured = source.plan, source.measured
    parts = measured_parts(plan, measured) if measured else predicted_parts(plan)
    slow = bottleneck(card_times_s(plan, parts))
    card = None if slow is None else plan.cards[slow]
    return Fact(
        title="Bottleneck",
        value=f"{card.title}, {card.device}" if card else "none",
        detail=stage_times_finding(plan, measured),
    )


def _proof(plan: Plan) -> Fact:
    solver = plan.solver
    count = f"{solver.candidates} plans simulated in {format_seconds(solver.solve_s)}"
    if solver.status == "optimal":
        detail = f"no plan that was searched has a shorter simulated step; {count}"
        return Fact(title="Proof", value="optimal", detail=detail)
    return Fact(
        title="Proof",
        value=f"feasible, at most {format_percent(solver.gap)} from optimal",
        detail=f"{count}; no plan takes less than {format_seconds(solver.bound_s)}",
    )


def _number(title: str, predicted: str, measured: str, *, detail: str) -> Fact:
    """The measured number where there is one, with the predicted one below."""
    if not measured:
        return Fact(title=title, value=f"{predicted} predicted", detail=detail)
    below = "; ".join(part for part in (f"{predicted} predicted", detail) if part)
    return Fact(title=title, value=f"{measured} measured", detail=below)
