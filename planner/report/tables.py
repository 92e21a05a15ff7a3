"""Numbers side by side: predicted against measured, and what others would do."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from planner.plan import Plan
from planner.report.findings import peaks_bytes, relative_error
from planner.report.loads import action_times_s, kinds_of_stages
from planner.report.spans import Spans, bubble_fraction, device_bubbles, makespan_s
from planner.run_record import Measured
from planner.units import format_bytes, format_percent, format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One row as people read it.

    Attributes:
        cells: Text of each column.
        is_marked: Whether it stands out.
    """

    cells: tuple[str, ...]
    is_marked: bool = False


def compared_numbers(plan: Plan, measured: Measured, spans: Spans) -> pd.DataFrame:
    """Every number that was both predicted and measured.

    Args:
        plan: The plan that the run followed.
        measured: What the run measured.
        spans: Of the measured step; empty if the run recorded none.

    Returns:
        Columns `quantity`, `unit` (`s`, `bytes`, `1/s` or `1`), `predicted`,
        `measured` and `error`, (predicted - measured) / measured. The error of a
        share of one is the difference instead, in points of one.
    """
    predicted = plan.predicted
    rows = [
        ("step time", "s", predicted.step_s, measured.step_s),
        ("tokens a second", "1/s", predicted.tokens_per_s, measured.tokens_per_s),
    ]
    if spans:
        bubble = bubble_fraction(spans, plan.num_devices)
        rows.append(("makespan", "s", predicted.makespan_s, makespan_s(spans)))
        rows.append(("bubble", "1", predicted.bubble_fraction, bubble))
        shares = device_bubbles(spans, plan.num_devices)
        for card in plan.cards:
            name = f"{card.title}: bubble"
            rows.append((name, "1", 1 - card.busy_fraction, shares[card.index]))
    slowest_s = max(stage.optimizer_s for stage in measured.stages)
    rows.append(("optimizer step", "s", predicted.optimizer_s, slowest_s))
    stages = zip(plan.stages, measured.stages, kinds_of_stages(plan), strict=True)
    for stage, found, kinds in stages:
        own, real = (action_times_s(one, kinds) for one in (stage.predicted, found))
        rows += [(f"stage {stage.index}: {k}", "s", own[k], real[k]) for k in kinds]
    for card, peak in zip(plan.cards, peaks_bytes(plan, measured), strict=True):
        rows.append((f"{card.title}: memory", "bytes", float(card.own_bytes), peak))
    frame = pd.DataFrame(rows, columns=["quantity", "unit", "predicted", "measured"])
    frame["error"] = [
        p - m if unit == "1" else relative_error(p, m) for _, unit, p, m in rows
    ]
    return frame


def compared_rows(frame: pd.DataFrame) -> tuple[TableRow, ...]:
    """The compared numbers with units.

    Args:
        frame: From `compared_numbers`.

    Returns:
        Rows of quantity, predicted, measured and error; nothing where nothing was
        measured.
    """
    return tuple(
        TableRow(
            cells=(
                row["quantity"],
                _FORMATS[row["unit"]](row["predicted"]),
                _FORMATS[row["unit"]](row["measured"]) if row["measured"] else "-",
                _error(row["error"], row["unit"]),
            )
        )
        for row in frame.to_dict("records")
    )


def baseline_rows(plan: Plan) -> tuple[TableRow, ...]:
    """This plan and what others would do, fastest first.

    Args:
        plan: The plan.

    Returns:
        Rows of name, layers a stage, predicted step time, difference to this plan
        and whether it fits or what is missing; this plan is marked.
    """
    step_s = plan.predicted.step_s
    own = tuple(len(stage.layers) for stage in plan.stages)
    frame = pd.DataFrame(
        [
            ("this plan", own, step_s, True, 0, True),
            *(
                (b.name, b.layers_per_stage, b.step_s, b.fits, b.missing_bytes, False)
                for b in plan.baselines
            ),
        ],
        columns=["name", "layers", "step_s", "fits", "missing", "is_plan"],
    ).sort_values("step_s", kind="stable")
    return tuple(
        TableRow(
            cells=(
                row["name"],
                ", ".join(map(str, row["layers"])) or "all on every card",
                format_seconds(row["step_s"]),
                "-" if row["is_plan"] else _longer(row["step_s"], step_s),
                "yes" if row["fits"] else _lacks(row["missing"]),
            ),
            is_marked=row["is_plan"],
        )
        for row in frame.to_dict("records")
    )


def _lacks(missing_bytes: int) -> str:
    return f"no, lacks {format_bytes(missing_bytes)}" if missing_bytes else "no"


def _longer(step_s: float, plan_s: float) -> str:
    return f"{100 * (step_s / plan_s - 1):+.1f} %" if plan_s else "-"


def _error(error: float, unit: str) -> str:
    if pd.isna(error):
        return "-"
    return f"{100 * error:+.1f} {'points' if unit == '1' else '%'}"


_FORMATS: dict[str, Callable[[float], str]] = {
    "s": format_seconds,
    "bytes": format_bytes,
    "1/s": lambda rate: f"{rate:,.0f} /s" if rate >= 100 else f"{rate:.1f} /s",
    "1": format_percent,
}
