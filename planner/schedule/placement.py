"""Which device works on which stages.

With 3 devices and 2 stages on each:

    loop    0 1 2 0 1 2    every turn starts at device 0 again
    v       0 1 2 2 1 0    every other turn runs backwards, so that stage 2 hands over
                           to itself, and device 0 has the first and the last stage

Sources: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
Clusters Using Megatron-LM" (loop); Qi et al., "Zero Bubble Pipeline Parallelism"
(v).
"""

from typing import Literal

Placement = Literal["loop", "v"]


def device_of_stage(
    placement: Placement, num_devices: int, stages_per_device: int
) -> tuple[int, ...]:
    """Where every stage is.

    Args:
        placement: `loop` or `v`; the same with one stage a device.
        num_devices: At least 1.
        stages_per_device: At least 1.

    Returns:
        The device of stage 0, of stage 1 and so on.
    """
    there = tuple(range(num_devices))
    back = there if placement == "loop" else there[::-1]
    return sum(((there, back)[turn % 2] for turn in range(stages_per_device)), ())


def stages_of_device(
    placement: Placement, num_devices: int, stages_per_device: int, device: int
) -> tuple[int, ...]:
    """Which stages a device works on.

    Args:
        placement: `loop` or `v`.
        num_devices: At least 1.
        stages_per_device: At least 1.
        device: From 0.

    Returns:
        Its stages in the order of the model.
    """
    homes = device_of_stage(placement, num_devices, stages_per_device)
    return tuple(stage for stage, home in enumerate(homes) if home == device)
