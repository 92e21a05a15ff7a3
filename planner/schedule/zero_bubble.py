"""Zero bubble: the backward in two halves, W filling what I leaves open.

ZB-H1, one stage a device (F, I and W take the same time):

    F0 F1 F2 .. .. I0 W0 F3 I1 W1 I2 W2 I3 W3
    .. F0 F1 .. I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
    .. .. F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3

and interleaved, with several:

    0F0 0F1 2F0 2F1 ..  2I0 2W0 2I1 2W1 0I0 0W0 0I1 0W1
    ..  1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1 1I1 1W0 1W1

The stage before waits for I only. Every device does one forward more than the next
before its first I; device d lets d of its W wait for the cool-down, where they fill
the bubble down to (num_devices - 1)(F + I - W), if I is no shorter than F and W no
longer. Until then they keep activations: every device holds as many as the first one
under 1F1B. Source: Qi et al., "Zero Bubble Pipeline Parallelism".
"""

from planner.schedule.actions import Actions
from planner.schedule.placement import stages_of_device
from planner.schedule.rounds import in_rounds, round_size
from planner.schedule.rows import alternate, delay_weights


def zero_bubble_h1(num_devices: int, num_microbatches: int) -> Actions:
    """Order of actions under ZB-H1, one stage a device.

    Args:
        num_devices: At least 1.
        num_microbatches: Of one step, at least 1.

    Returns:
        The actions of every device.
    """
    return interleaved_zero_bubble(num_devices, num_microbatches, 1)


def interleaved_zero_bubble(
    num_devices: int, num_microbatches: int, stages_per_device: int
) -> Actions:
    """Order of actions under the interleaved zero bubble, in loop placement.

    Args:
        num_devices: At least 1.
        num_microbatches: Of one step; with several stages a device divisible into
            rounds, see `rounds_problem`.
        stages_per_device: At least 1.

    Returns:
        The actions of every device.
    """
    size = round_size(num_devices, num_microbatches)
    rows = []
    for device in range(num_devices):
        stages = stages_of_device("loop", num_devices, stages_per_device, device)
        row = alternate(
            in_rounds("F", stages, num_microbatches, size),
            in_rounds("I", stages[::-1], num_microbatches, size),
            num_warmup=(stages_per_device - 1) * size + num_devices - 1 - device,
        )
        rows.append(delay_weights(row, num_waiting=device))
    return tuple(rows)
