"""One sentence on each way, beside the plan."""

import dataclasses

from planner.plan import CLOSE, Baseline
from planner.units import format_bytes


def judged(entry: Baseline, plan_s: float | None) -> Baseline:
    """Complete the judgement of a way.

    Args:
        entry: Whose judgement is only the fact that explains it.
        plan_s: Step time of the plan; None if nothing fits [s].

    Returns:
        The same, and what it comes to before the fact.
    """
    verdict = comparison(entry.step_s, plan_s) if entry.fits else _lack(entry)
    text = ": ".join(filter(None, (verdict, entry.judgement)))
    return dataclasses.replace(entry, judgement=text)


def comparison(step_s: float, plan_s: float | None) -> str:
    """How a step time compares with the plan's.

    Args:
        step_s: Of a way that fits [s].
        plan_s: Of the plan; None if nothing fits [s].

    Returns:
        Such as `12 % longer than the plan`.
    """
    if plan_s is None:
        return "fits"
    if not plan_s:
        return ""
    ratio = step_s / plan_s
    if abs(ratio - 1) <= CLOSE:
        return "as quick as the plan"
    if ratio < 1:
        return f"quicker than the plan by {100 * (1 - ratio):.0f} %"
    if ratio < 2:
        return f"{100 * (ratio - 1):.0f} % longer than the plan"
    return f"{ratio:.1f} times as long as the plan"


def _lack(entry: Baseline) -> str:
    again = ", even with every block recomputed" if entry.recompute == "full" else ""
    return f"{entry.card} lacks {format_bytes(entry.missing_bytes)}{again}"
