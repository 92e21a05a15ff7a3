"""GPipe: all forwards, then all backwards.

    0F0 0F1 0F2  .   .  0B0 0B1 0B2
     .  1F0 1F1 1F2 1B0 1B1 1B2  .

Every stage holds all microbatches at once, hence memory grows with their
number. Source: Huang et al., "GPipe: Efficient Training of Giant Neural
Networks using Pipeline Parallelism".
"""

from planner.schedule.actions import Action, Actions


def gpipe(num_stages: int, num_microbatches: int) -> Actions:
    """Order of actions under GPipe, one stage a device.

    Args:
        num_stages: At least 1.
        num_microbatches: Of one step, at least 1.

    Returns:
        The actions of every device.
    """
    microbatches = range(num_microbatches)
    return tuple(
        tuple(Action(stage, "F", m) for m in microbatches)
        + tuple(Action(stage, "B", m) for m in microbatches)
        for stage in range(num_stages)
    )
