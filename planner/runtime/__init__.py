"""Training: launch, one worker per card, data, optimizer, checkpoints.

`planner.runtime.options` is read without starting torch, so nothing heavy is
imported here.
"""

from collections.abc import Callable

from planner.plan import Plan
from planner.run_record import RunRecord
from planner.runtime.options import RunOptions

__all__ = ["RunOptions", "run_plan"]


def run_plan(
    plan: Plan, options: RunOptions, *, say: Callable[[str], None] = lambda line: None
) -> RunRecord:
    """Train as a plan says; returns when all is saved.

    Args:
        plan: The plan.
        options: What the user chose besides.
        say: Takes a line that the user should see.

    Returns:
        The record of the run, as in `run.json`.

    Raises:
        PlannerError: See `planner.runtime.launch.run_plan`.
    """
    from planner.runtime.torch_version import check_torch_version

    check_torch_version()
    from planner.runtime.launch import run_plan as run

    return run(plan, options, say=say)
