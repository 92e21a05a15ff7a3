"""Interleaved 1F1B: 1F1B with several stages a device, in rounds.

    0F0 0F1 2F0 2F1 ..  ..  2B0 2B0 ..  2B1 2B1 0B0 0B0 0B1 0B1
    ..  1F0 1F1 3F0 3B0 3B0 3F1 3B1 3B1 1B0 1B0 1B1 1B1 ..  ..

The fill is that of one stage, and stages are `stages_per_device` times shorter; but
each device holds more microbatches and sends more often. The last device starts its
backwards once a round has reached its last stage; every other one does two forwards
more than the next, one for a microbatch's way there and one for its way back.
Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
Clusters Using Megatron-LM".
"""

from planner.schedule.actions import Actions
from planner.schedule.placement import stages_of_device
from planner.schedule.rounds import in_rounds, round_size
from planner.schedule.rows import alternate


def interleaved_1f1b(
    num_devices: int, num_microbatches: int, stages_per_device: int
) -> Actions:
    """Order of actions under interleaved 1F1B, in loop placement.

    Args:
        num_devices: At least 1.
        num_microbatches: Of one step; divisible into rounds, see `rounds_problem`.
        stages_per_device: At least 2.

    Returns:
        The actions of every device.
    """
    size = round_size(num_devices, num_microbatches)
    rows = []
    for device in range(num_devices):
        stages = stages_of_device("loop", num_devices, stages_per_device, device)
        rows.append(
            alternate(
                in_rounds("F", stages, num_microbatches, size),
                in_rounds("B", stages[::-1], num_microbatches, size),
                num_warmup=(stages_per_device - 1) * size
                + 2 * (num_devices - 1 - device),
            )
        )
    return tuple(rows)
