"""Which stage of a device holds what at the device's fullest moment.

The shares of the stages add up to the peak of the device. What is always there is
each stage's own; the reserve counts with the first stage of the device; what runs
at that moment is the workspace of its stage.
"""

from collections.abc import Mapping, Sequence

from planner.memory.device_bytes import action_bytes, buffer_bytes, handed_on_bytes
from planner.memory.over_time import device_memory
from planner.memory.stage_bytes import StageBytes
from planner.plan import MemoryBreakdown
from planner.schedule.actions import Action
from planner.schedule.named import num_microbatches_of


def memory_shares(
    row: Sequence[Action], stages: Mapping[int, StageBytes], reserve_bytes: int = 0
) -> dict[int, MemoryBreakdown]:
    """Split the peak of one device over its stages.

    Args:
        row: Its actions, in order.
        stages: Memory of its stages by stage number.
        reserve_bytes: Kept free on the card [bytes].

    Returns:
        By stage number, ascending; the totals add up to the peak of the device.
    """
    memory = device_memory(row, stages, reserve_bytes)
    effects = action_bytes(stages)
    position = memory.peak_position
    levels = dict.fromkeys(stages, 0)
    workspace = dict.fromkeys(stages, 0)
    if position is not None:
        for action in row[:position]:
            back = (
                0 if action.kind in "FW" else handed_on_bytes(stages, action.stage - 1)
            )
            levels[action.stage] += effects[action.stage, action.kind][0] - back
            if back:
                levels[action.stage - 1] += back
        running = row[position]
        growth, _ = effects[running.stage, running.kind]
        levels[running.stage] += max(growth, 0)
        workspace[running.stage] = memory.workspace_bytes[position]
    num_microbatches = num_microbatches_of((tuple(row),))
    shares = {}
    for place, (stage, own) in enumerate(sorted(stages.items())):
        items = {
            "weights": own.weights_bytes,
            "gradients": own.gradients_bytes,
            "optimizer": own.optimizer_bytes,
            "activations": levels[stage],
            "workspace": workspace[stage],
            "communication": buffer_bytes(stages, stage, num_microbatches),
            "overhead": 0 if place else reserve_bytes,
        }
        shares[stage] = MemoryBreakdown(**items, total=sum(items.values()))
    return shares
