"""The same work in other ways, as a person reads it: the quickest that fits on top.

    way          used by    step    x plan  memory
    this plan               2.54 s    1.00  fits
      1f1b, 8 microbatches of 1, 9, 11, 11, 7 layers
    even layers  torchtitan  3.95 s   1.55  fits
      38 % longer than the plan: ...

Steps of what does not fit are in brackets: nobody will see them.
"""

import re
import textwrap
from collections.abc import Sequence

from planner.plan import Baseline, Plan
from planner.plan_text import describe_links
from planner.units import format_bytes, format_seconds

_WIDTH = 100
_HEADER = ("way", "used by", "step", "x plan", "memory")
_RIGHT = {"step", "x plan"}
_DETAIL = "    "
# A number and its unit stay on one line.
_UNIT = re.compile(r"(?<=\d) (?=(?:[KMG]iB|[mu]?s|%|B)\b|%)")
# What a prediction rests on that a user can check.
_PROVIDED = {"ZeRO-3": "if all links keep their rate while all are used"}


def describe_comparison(plan: Plan) -> str:
    """Write a plan and all other ways for a terminal.

    Args:
        plan: With its baselines.

    Returns:
        Lines of at most 100 columns: the work, two lines or more a way, and what to
        make of it.
    """
    if not plan.baselines:
        return f"{_work(plan)}\n\nnothing to compare with: {_why_none(plan)}"
    lines = [
        *_wrapped(_work(plan), ""),
        "",
        *_table(plan.baselines, plan),
        "",
        *_wrapped(_verdict(plan), ""),
    ]
    return "\n".join(lines)


def describe_others(baselines: Sequence[Baseline]) -> str:
    """Write the other ways where no plan fits.

    Args:
        baselines: At least one.

    Returns:
        The same without a plan.
    """
    fitting = [entry.name for entry in _sorted(baselines) if entry.fits]
    verdict = (
        f"no plan fits, but this does: {', '.join(fitting)}"
        if fitting
        else "none of these fits either"
    )
    return "\n".join([*_table(baselines, None), "", *_wrapped(verdict, "")])


def _work(plan: Plan) -> str:
    kinds = dict.fromkeys(card.device.rpartition(":")[0] for card in plan.cards)
    links = describe_links(plan)
    name = plan.model.id or plan.model.architecture or "model"
    return (
        f"{name} on {plan.num_cards_text} ({', '.join(kinds)}), "
        f"{plan.global_batch_size} sequences of {plan.seq_len} tokens a step, "
        f"{plan.dtype}, {plan.optimizer.name}"
        f"{f'; links {links}' if links else ''}"
    )


def _why_none(plan: Plan) -> str:
    if plan.num_processes == 1:
        return "there is only one card"
    return "the plan does not say what others would do; solve again"


def _table(baselines: Sequence[Baseline], plan: Plan | None) -> list[str]:
    step_s = plan.predicted.step_s if plan else 0.0
    rows = [(_row(x, step_s), _detail(x, plan)) for x in _sorted(baselines)]
    if plan:
        rows.insert(0, _of_plan(plan))
    cells = [_HEADER, *(row for row, _ in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(_HEADER))]
    lines = [_joined(_HEADER, widths)]
    for row, detail in rows:
        lines += [_joined(row, widths), *_wrapped(detail, _DETAIL)]
    return lines


def _sorted(baselines: Sequence[Baseline]) -> list[Baseline]:
    """What fits by time, then what does not by what is missing."""
    return sorted(
        baselines, key=lambda entry: (not entry.fits, entry.missing_bytes, entry.step_s)
    )


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.rjust(width) if title in _RIGHT else cell.ljust(width)
        for title, cell, width in zip(_HEADER, row, widths, strict=True)
    ]
    return "  ".join(cells).rstrip()


def _row(entry: Baseline, plan_s: float) -> tuple[str, ...]:
    step = format_seconds(entry.step_s)
    ratio = f"{entry.step_s / plan_s:.2f}" if plan_s else ""
    memory = "fits"
    if not entry.fits:
        step, ratio = f"({step})", f"({ratio})" if ratio else ""
        missing = entry.missing_bytes
        memory = f"lacks {format_bytes(missing)}" if missing else "does not fit"
    return entry.name, entry.used_by, step, ratio, memory


def _detail(entry: Baseline, plan: Plan | None) -> str:
    """The judgement, and in brackets how, as far as it is not as in the plan."""
    parts = []
    size = plan.schedule.microbatch_size if plan else 0
    if plan and entry.schedule not in ("", "in turn", plan.schedule.name):
        parts.append(entry.schedule)
    if entry.layers_per_stage:
        parts.append(f"{_counts(entry.layers_per_stage)} layers")
    if entry.microbatch_size not in (0, size):
        parts.append(f"microbatches of {entry.microbatch_size}")
    if entry.recompute == "full" and entry.fits:
        parts.append("all recomputed")
    how = ", ".join(parts)
    return (
        f"{entry.judgement} ({how})"
        if entry.judgement and how
        else (entry.judgement or how)
    )


def _of_plan(plan: Plan) -> tuple[tuple[str, ...], str]:
    schedule, step_s = plan.schedule, plan.predicted.step_s
    spare = min(-card.excess_bytes for card in plan.cards)
    known = all(card.capacity_bytes for card in plan.cards)
    memory = f"fits, {format_bytes(spare)} left" if known and spare >= 0 else "fits"
    again = sum(len(stage.recompute) for stage in plan.stages)
    count = schedule.num_microbatches
    copies = f"{plan.num_copies} copies, " if plan.copies else ""
    detail = (
        f"{plan.solver.status}, {copies}{schedule.name}, {count} microbatches of "
        f"{schedule.microbatch_size} "
        f"({_counts([len(stage.layers) for stage in plan.stages])} layers"
        f"{f', {again} of them recomputed' if again else ''})"
    )
    ratio = "1.00" if step_s else ""
    return ("this plan", "", format_seconds(step_s), ratio, memory), detail


def _counts(counts: Sequence[int]) -> str:
    return "+".join(map(str, counts))


def _verdict(plan: Plan) -> str:
    step_s = plan.predicted.step_s
    if quicker := plan.quicker_baselines:
        first = quicker[0]
        more = f", and so would {', '.join(b.name for b in quicker[1:])}"
        return (
            f"{first.name} would be quicker than the plan: "
            f"{format_seconds(first.step_s)} a step against {format_seconds(step_s)}"
            f"{', ' + _PROVIDED[first.name] if first.name in _PROVIDED else ''}"
            f"{more if quicker[1:] else ''}. planner runs the plan only."
        )
    fitting = [entry for entry in _sorted(plan.baselines) if entry.fits]
    if not fitting:
        return "nothing else fits"
    if not step_s:
        return f"also fits: {', '.join(entry.name for entry in fitting)}"
    return (
        f"nothing else that fits is quicker; the next is {fitting[0].name}, "
        f"{fitting[0].step_s / step_s:.2f}x the time"
    )


def _wrapped(text: str, indent: str) -> list[str]:
    lines = textwrap.wrap(
        _UNIT.sub("\N{NO-BREAK SPACE}", text),
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
