"""What a report is about: a plan, or a run with what was measured.

A run that ended early is no error: what is absent is named in `missing`.
"""

from dataclasses import dataclass
from pathlib import Path

from planner.errors import ArtifactError
from planner.plan import Plan, load_plan
from planner.run_record import (
    Measured,
    RunRecord,
    StepMetrics,
    load_metrics,
    load_run,
)
from planner.schedule.actions import parse_actions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSource:
    """Everything a report is made from.

    Attributes:
        path: The plan's file or the run directory.
        plan: The plan; of a run, the one it followed.
        run: The record of the run; None for a plan alone.
        metrics: One entry a step.
        missing: What could not be shown and why, one sentence each.
    """

    path: Path
    plan: Plan
    run: RunRecord | None = None
    metrics: tuple[StepMetrics, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def measured(self) -> Measured | None:
        """What was measured, if anything was."""
        return self.run.measured if self.run else None


def read_source(path: Path) -> ReportSource:
    """Read a plan or a run.

    Args:
        path: A plan's JSON file, a run directory, or its `run.json`.

    Returns:
        What there is.

    Raises:
        ArtifactError: There is no such file, or it is neither plan nor run.
    """
    if not path.exists():
        msg = f"{path} does not exist; name a plan's JSON file or a run directory"
        raise ArtifactError(msg)
    if path.is_file() and path.name != "run.json":
        return ReportSource(path=path, plan=_checked(load_plan(path), path))
    run_dir = path if path.is_dir() else path.parent
    if not (run_dir / "run.json").exists():
        msg = (
            f"the folder {run_dir} has no run.json, so it is not a run directory; "
            "name the one that planner run wrote, or a plan's JSON file"
        )
        raise ArtifactError(msg)
    return _read_run(run_dir)


def _checked(plan: Plan, path: Path) -> Plan:
    """The plan, if its actions can be read and every card has a stage."""
    try:
        parse_actions(plan.schedule.actions)
    except ValueError as error:
        msg = f"{path} is not a valid plan: {error}; make it again with planner solve"
        raise ArtifactError(msg) from error
    used = [card.index for card in plan.cards]
    if used != list(range(plan.num_devices)):
        rows = "row" if plan.num_devices == 1 else "rows"
        msg = (
            f"{path} has {plan.num_devices} {rows} of actions, one a card, but its "
            f"{plan.num_stages} stages are on cards {', '.join(map(str, used))}; make "
            "it again with planner solve"
        )
        raise ArtifactError(msg)
    return plan


def _read_run(run_dir: Path) -> ReportSource:
    run = load_run(run_dir)
    _checked(run.plan, run_dir / "run.json")
    missing = []
    try:
        metrics = load_metrics(run_dir)
        if not metrics:
            missing.append("No training curves: metrics.jsonl has no step yet.")
    except (ArtifactError, OSError, UnicodeError) as error:
        metrics = ()
        missing.append(f"No training curves: {error}.")
    if run.measured is None:
        missing.insert(0, _not_measured(run, len(metrics)))
    elif len(run.measured.stages) != run.plan.num_stages:
        msg = (
            f"{run_dir / 'run.json'} measured {len(run.measured.stages)} stages but "
            f"its plan has {run.plan.num_stages}; run the plan again"
        )
        raise ArtifactError(msg)
    elif len(run.measured.devices) not in (0, run.plan.num_devices):
        msg = (
            f"{run_dir / 'run.json'} measured {len(run.measured.devices)} cards but "
            f"its plan has {run.plan.num_devices}; run the plan again"
        )
        raise ArtifactError(msg)
    elif not all(stage.spans for stage in run.measured.stages):
        missing.append("No measured timeline: run.json lacks the actions of a stage.")
    return ReportSource(
        path=run_dir, plan=run.plan, run=run, metrics=metrics, missing=tuple(missing)
    )


def _not_measured(run: RunRecord, num_steps: int) -> str:
    ending = "measured nothing" if run.status == "finished" else "has not finished"
    done = f"{num_steps} step{'' if num_steps == 1 else 's'} recorded"
    return (
        f"The run {ending} ({done}), so measured times and memory are absent; "
        "continue it with planner run --resume."
    )
