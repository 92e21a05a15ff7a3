"""GPipe: all forwards, then all backwards.

    F0 F1 F2 .. .. .. B0 B0 B1 B1 B2 B2
    .. F0 F1 F2 B0 B0 B1 B1 B2 B2 .. ..

Every stage holds all microbatches at once, hence memory grows with their
number. Source: Huang et al., "GPipe: Efficient Training of Giant Neural
Networks using Pipeline Parallelism".
"""

from planner.schedule.actions import Action, Actions


def gpipe(num_devices: int, num_microbatches: int) -> Actions:
    """Order of actions under GPipe, one stage a device.

    Args:
        num_devices: At least 1.
        num_microbatches: Of one step, at least 1.

    Returns:
        The actions of every device.
    """
    microbatches = range(num_microbatches)
    return tuple(
        tuple(Action(stage, "F", m) for m in microbatches)
        + tuple(Action(stage, "B", m) for m in microbatches)
        for stage in range(num_devices)
    )
