"""DualPipeV: two stages a device as a V, forwards paired with backwards.

    0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3B1 3F2 0B0 0B0 3B2 3B2 3F3 ..  0B1 0B1 3B3
    ..  1F0 2F0 1F1 2F1 1F2 2B0 2B0 2F2 1B0 1B0 1F3 2B1 2B1 2F3 1B1 1B1 2B2 2B2 1B2

    3B3 0I2 0W2 0I3 0W3
    1B2 2I3 1I3 2W3 1W3

In the steady state every F stands beside the B of another microbatch, so that the
transfers of the one may run under the compute of the other. Only at the start and at
the end is the backward split. Every device holds half a microbatch more than under
ZB-V. Source: DeepSeek-AI, "DeepSeek-V3 Technical Report" (DualPipe), of which this is
one half, folded to a V.

Known limitations: the actions of a pair are in order, one after the other; no two
run at the same time.
"""

from planner.schedule.actions import Action, Actions
from planner.schedule.phases import Phase, play
from planner.schedule.placement import stages_of_device


def dualpipe_v(num_devices: int, num_microbatches: int) -> Actions:
    """Order of actions under DualPipeV, two stages a device.

    Args:
        num_devices: At least 1.
        num_microbatches: Of one step, at least two for each device.

    Returns:
        The actions of every device.
    """
    return tuple(
        _device_actions(device, num_devices, num_microbatches)
        for device in range(num_devices)
    )


def dualpipe_v_problem(num_devices: int, num_microbatches: int) -> str:
    """Why there is no DualPipeV.

    Args:
        num_devices: At least 1.
        num_microbatches: Of one step.

    Returns:
        What is needed instead; empty if there is one.
    """
    num_stages = 2 * num_devices
    if num_microbatches >= num_stages:
        return ""
    return (
        f"needs as many microbatches as its {num_stages} stages, "
        f"and there are {num_microbatches}; use at least {num_stages} microbatches"
    )


def _device_actions(
    device: int, num_devices: int, num_microbatches: int
) -> tuple[Action, ...]:
    stages = stages_of_device("v", num_devices, 2, device)
    below, here_and_above = num_devices - 1 - device, device + 1
    # The last backwards of both stages in turn: B until I is waited for.
    in_turn = ["1B", "0B"] * here_and_above
    split = [step.replace("B", "I") for step in in_turn[here_and_above:]]
    phases = (
        # Warm-up.
        Phase(2 * below, "0F"),
        Phase(here_and_above, "0F 1F"),
        Phase(below, "1I W 1F"),
        # Steady state, at its end without new microbatches.
        Phase(num_microbatches - num_devices - below, "0F 1B 1F 0B"),
        Phase(below, "1B 1F 0B"),
        # Cool-down.
        Phase(1, " ".join(in_turn[:here_and_above] + split)),
        Phase(below, "W 0I"),
        Phase(here_and_above, "W"),
    )
    return play(phases, stages)
