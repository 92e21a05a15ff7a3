"""The schedules that have a name, and what follows from any list of actions.

A further schedule is one more file and one more line in `SCHEDULES`.
"""

from collections.abc import Callable

from planner.errors import WishError
from planner.schedule.actions import Actions
from planner.schedule.gpipe import gpipe
from planner.schedule.one_forward_one_backward import one_forward_one_backward

# In the order of preference: the first of equally fast ones is taken.
SCHEDULES: dict[str, Callable[[int, int], Actions]] = {
    "1f1b": one_forward_one_backward,
    "gpipe": gpipe,
}


def schedule_actions(name: str, num_stages: int, num_microbatches: int) -> Actions:
    """Order of actions of a named schedule.

    Args:
        name: A key of `SCHEDULES`.
        num_stages: At least 1.
        num_microbatches: Of one step, at least 1.

    Returns:
        The actions of every device.

    Raises:
        WishError: There is no schedule of that name.
        ValueError: A count is below 1.
    """
    if name not in SCHEDULES:
        msg = f"unknown schedule '{name}'; there are {', '.join(SCHEDULES)}"
        raise WishError(msg)
    if num_stages < 1 or num_microbatches < 1:
        msg = (
            f"{num_stages} stages and {num_microbatches} microbatches: a schedule "
            "needs at least one of each"
        )
        raise ValueError(msg)
    return SCHEDULES[name](num_stages, num_microbatches)


def num_in_flight(actions: Actions, stage: int) -> int:
    """How many microbatches a stage holds at most.

    A microbatch is in flight from its F until its activations are freed: by its
    B, or by its W where the backward is split.

    Args:
        actions: Of every device.
        stage: From 0.

    Returns:
        The largest number forwarded and not yet backwarded; under 1F1B
        `min(num_stages - stage, num_microbatches)`.
    """
    held = most = 0
    for row in actions:
        for action in row:
            if action.stage == stage:
                held += {"F": 1, "B": -1, "I": 0, "W": -1}[action.kind]
                most = max(most, held)
    return most


def num_microbatches_of(actions: Actions) -> int:
    """How many microbatches a list of actions works on.

    Args:
        actions: Of every device.

    Returns:
        One more than the largest microbatch index; 0 without actions.
    """
    return 1 + max((a.microbatch for row in actions for a in row), default=-1)
