"""A check for the terminal, and its offender in one sentence."""

from planner.chain.check import CheckReport, CutCheck
from planner.chain.parity import GRADIENT_TOLERANCE, LOSS_TOLERANCE, CutDifference
from planner.table import format_table


def describe_check(report: CheckReport) -> str:
    """Write what every cut changes as a table, and where there is none.

    Args:
        report: The check.

    Returns:
        Lines without a newline at the end.
    """
    rows = [
        (
            cut.after_layer,
            f"{cut.loss_difference:.1e}",
            f"{cut.worst_gradient_difference:.1e}",
            cut.where or "-",
        )
        for cut in report.tried
    ]
    header = ("cut after", "loss", "worst gradient", "where")
    lines = [
        f"{report.model}: a small copy of {report.num_parameters:,} parameters"
        f"{_without_gradient(report)}, split against unsplit, relative differences",
        "",
        format_table(header, rows),
    ]
    if report.refused:
        lines += ["", "no cut"]
        lines += [f"  after {x.after_layer}: {x.why}" for x in report.refused]
    if report.exact:
        lines += [
            "",
            f"exact: in {len(report.tried)} cuts the loss is the same to "
            f"{LOSS_TOLERANCE:.0e} and the gradient of each parameter to "
            f"{GRADIENT_TOLERANCE:.0e} of its norm",
        ]
    return "\n".join(lines)


def _without_gradient(report: CheckReport) -> str:
    left_out = report.num_parameters - report.num_gradients
    return f", {left_out:,} of them without a gradient" if left_out else ""


def offence(report: CheckReport) -> str:
    """Name the worst cut of a check that is not exact.

    Args:
        report: The check.

    Returns:
        One sentence.
    """
    worst = max(report.tried, key=_badness)
    num_wrong = sum(not _is_exact(cut) for cut in report.tried)
    return (
        f"{report.model} does not train the same when it is cut after "
        f"{worst.after_layer}: {describe_difference(worst)} "
        f"({num_wrong} of {len(report.tried)} cuts differ); do not train it split"
    )


def describe_difference(cut: CutCheck) -> str:
    """Say how much a cut changes, and what.

    Args:
        cut: The cut.

    Returns:
        Half a sentence.
    """
    return (
        f"the loss differs by {cut.loss_difference:.1e}, the gradient of "
        f"{cut.where or 'no parameter'} by {cut.worst_gradient_difference:.1e}"
    )


def _is_exact(cut: CutCheck) -> bool:
    return CutDifference(
        last_layers=(),
        loss=cut.loss_difference,
        gradient=cut.worst_gradient_difference,
        where=cut.where,
    ).is_exact


def _badness(cut: CutCheck) -> tuple[bool, float]:
    """Wrong ones first; NaN is as bad as can be."""
    found = cut.worst_gradient_difference, cut.loss_difference
    size = max(float("inf") if x != x else x for x in found)
    return not _is_exact(cut), size
