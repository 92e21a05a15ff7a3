"""ZB-V: zero bubble with two stages a device, placed as a V.

    0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2 ..
    ..  1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2

A microbatch runs down the devices and up again, so the last device has both middle
stages and hands over to itself, and the first one has the embedding and the head.
Every device holds the activations of `num_devices` microbatches at most. With F, I
and W of the same length, as here, the bubble is (num_devices - 1) F of one stage.
Source: Qi et al., "Zero Bubble Pipeline Parallelism", section 6.
"""

from planner.schedule.actions import Action, Actions
from planner.schedule.phases import Phase, play
from planner.schedule.placement import stages_of_device


def zb_v(num_devices: int, num_microbatches: int) -> Actions:
    """Order of actions under ZB-V, two stages a device.

    Args:
        num_devices: At least 1.
        num_microbatches: Of one step, at least 1.

    Returns:
        The actions of every device.
    """
    return tuple(
        _device_actions(device, num_devices, num_microbatches)
        for device in range(num_devices)
    )


def _device_actions(
    device: int, num_devices: int, num_microbatches: int
) -> tuple[Action, ...]:
    stages = stages_of_device("v", num_devices, 2, device)
    below = num_devices - 1 - device
    # The phases need so many microbatches; fewer leave their places empty.
    num_played = max(num_microbatches, 2 * num_devices - 1)
    phases = (
        # Warm-up: down until the first microbatch is back from the devices below.
        Phase(2 * below + 1, "0F"),
        Phase(device, "1F 0F"),
        Phase(below + 1, "1F 1I 1W"),
        # Steady state, at its end without new microbatches.
        Phase(num_played - num_devices - below, "0F 0I 0W 1F 1I 1W"),
        Phase(below, "0I 0W 1F 1I 1W"),
        # Cool-down: I first, for others wait for it.
        Phase(device, "0I 1I"),
        Phase(below + 1, "0I 0W"),
        Phase(device, "1W"),
        Phase(device, "0W"),
    )
    row = play(phases, stages)
    return tuple(action for action in row if action.microbatch < num_microbatches)
