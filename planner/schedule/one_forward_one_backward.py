"""1F1B: after a short warm-up, every forward is followed by a backward.

    F0 F1 .. .. B0 B0 F2 B1 B1 .. B2 B2
    .. F0 B0 B0 F1 B1 B1 F2 B2 B2 .. ..

A stage never holds more than `num_devices - stage` microbatches. Source:
Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training".
"""

from planner.schedule.actions import Action, Actions
from planner.schedule.rows import alternate


def one_forward_one_backward(num_devices: int, num_microbatches: int) -> Actions:
    """Order of actions under 1F1B, one stage a device.

    Fewer microbatches than stages are fine: the warm-up is then shorter.

    Args:
        num_devices: At least 1.
        num_microbatches: Of one step, at least 1.

    Returns:
        The actions of every device.
    """
    return tuple(
        alternate(
            [Action(stage, "F", m) for m in range(num_microbatches)],
            [Action(stage, "B", m) for m in range(num_microbatches)],
            num_warmup=num_devices - 1 - stage,
        )
        for stage in range(num_devices)
    )
