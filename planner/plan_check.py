"""What must hold of any plan, whoever wrote it: every layer once, an order that runs.

Plans are files and files are edited, so this is asked again before a plan is run.
"""

from collections.abc import Sequence

from planner.errors import ArtifactError
from planner.plan import Plan
from planner.schedule.actions import Actions, parse_actions
from planner.schedule.validate import validate_actions


def check_layers(plan: Plan, names: Sequence[str]) -> None:
    """Check that a plan holds every layer exactly once, in order.

    Args:
        plan: From the solver or from a user's file.
        names: Of the layers of the profile or of the model, in order.

    Raises:
        ArtifactError: A name differs, is missing or is too many.
    """
    planned = plan.layer_names
    for index, (ours, theirs) in enumerate(zip(planned, names, strict=False)):
        if ours != theirs:
            msg = (
                f"layer {index} is '{ours}' in the plan but '{theirs}' in the model; "
                "the plan was made for another model, solve again"
            )
            raise ArtifactError(msg)
    if len(planned) != len(names):
        msg = (
            f"the plan has {len(planned)} layers but the model {len(names)}; "
            "the plan was made for another model, solve again"
        )
        raise ArtifactError(msg)


def check_schedule(plan: Plan) -> Actions:
    """Check that the schedule of a plan can be run.

    Args:
        plan: From the solver or from a user's file.

    Returns:
        The actions of every device.

    Raises:
        ArtifactError: An entry is no action, or the order is impossible.
    """
    try:
        actions = parse_actions(plan.schedule.actions)
        validate_actions(
            actions,
            num_stages=plan.num_stages,
            num_microbatches=plan.schedule.num_microbatches,
        )
    except ValueError as error:
        # Without the grid of all actions, which has thousands of them.
        complaint = str(error).split("\n")[0]
        msg = f"the schedule of the plan cannot be run: {complaint}; solve again"
        raise ArtifactError(msg) from error
    for device, row in enumerate(actions):
        if not row:
            msg = (
                f"device {device} of the plan has no stage: its row of "
                "schedule.actions is empty; take it out"
            )
            raise ArtifactError(msg)
    return actions
