"""Training: launch, one worker per card, data, optimizer, checkpoints."""

from planner.plan import Plan
from planner.run_record import RunRecord
from planner.runtime.options import RunOptions

__all__ = ["RunOptions", "run_plan"]


def run_plan(plan: Plan, options: RunOptions) -> RunRecord:
    """Train as a plan says; see `launch.run_plan`.

    Args:
        plan: The plan.
        options: What the user chose besides.

    Returns:
        The record of the run.
    """
    from planner.runtime.launch import run_plan as run  # starts torch

    return run(plan, options)
