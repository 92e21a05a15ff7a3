"""Which stage of a device holds what at the device's fullest moment.

The shares of the stages add up to the peak of the device. What is always there is
each stage's own; the reserve counts with the first stage of the device; what runs
at that moment is the workspace of its stage.
"""

from collections.abc import Mapping, Sequence

from planner.memory.over_time import device_memory
from planner.memory.stage_bytes import StageBytes
from planner.plan import MemoryBreakdown
from planner.schedule.actions import Action
from planner.schedule.validate import KINDS


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
    position = memory.peak_position
    levels = dict.fromkeys(stages, 0)
    workspace = dict.fromkeys(stages, 0)
    if position is not None:
        running = row[position].stage
        for action in row[:position]:
            levels[action.stage] += _growth(stages, action)
        levels[running] += max(_growth(stages, row[position]), 0)
        workspace[running] = memory.workspace_bytes[position]
    shares = {}
    for place, (stage, own) in enumerate(sorted(stages.items())):
        items = {
            "weights": own.weights_bytes,
            "gradients": own.gradients_bytes,
            "optimizer": own.optimizer_bytes,
            "activations": levels[stage],
            "workspace": workspace[stage],
            "communication": own.communication_bytes,
            "overhead": 0 if place else reserve_bytes,
        }
        shares[stage] = MemoryBreakdown(**items, total=sum(items.values()))
    return shares


def _growth(stages: Mapping[int, StageBytes], action: Action) -> int:
    return stages[action.stage].growth_bytes[KINDS.index(action.kind)]
