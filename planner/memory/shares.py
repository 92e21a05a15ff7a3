"""Which stage of a device holds what at the device's fullest moment.

The shares of the stages add up to the peak of the device. What is always there is
each stage's own; the reserve counts with the first stage of the device; what runs
at that moment is the workspace of its stage, in the optimizer's step that of the
stage which needs most.
"""

from collections.abc import Mapping, Sequence

from planner.memory.device_bytes import (
    action_effects,
    buffer_bytes,
    handed_on_bytes,
    left_for_step,
    sent_bytes,
    with_gradients_made,
)
from planner.memory.over_time import device_memory
from planner.memory.stage_bytes import StageBytes
from planner.plan import MemoryBreakdown
from planner.schedule.actions import Action
from planner.schedule.named import num_microbatches_of

# Activations, gradients and what is sent, by stage.
_Levels = dict[int, list[int]]


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
    is_step = position == len(row)
    levels = _levels(row, stages, position)
    if is_step:
        running = max(stages, key=lambda stage: stages[stage].step_peak_bytes)
        for stage, level in levels.items():
            level[0] = 0
            level[2] = left_for_step(row, stage) * sent_bytes(stages, stage)[1]
    else:
        running = row[position].stage
        later = _levels(row, stages, position + 1)
        if _total(later) > _total(levels):
            levels = later
    num_microbatches = num_microbatches_of((tuple(row),))
    shares = {}
    for place, (stage, own) in enumerate(sorted(stages.items())):
        activations, gradients, sent = levels[stage]
        buffers = buffer_bytes(stages, stage, num_microbatches)
        items = {
            "weights": own.weights_bytes,
            "gradients": gradients,
            "optimizer": own.optimizer_bytes,
            "activations": activations,
            "workspace": memory.peak.workspace if stage == running else 0,
            "communication": buffers + sent,
            "overhead": 0 if place else reserve_bytes,
        }
        shares[stage] = MemoryBreakdown(**items, total=sum(items.values()))
    return shares


def _levels(
    row: Sequence[Action], stages: Mapping[int, StageBytes], position: int
) -> _Levels:
    """The levels of every stage before an action."""
    effects = action_effects(stages)
    levels = {stage: [0, 0, 0] for stage in stages}
    for action, makes_gradients in with_gradients_made(row[:position]):
        stage = action.stage
        growth = effects[stage, action.kind, makes_gradients][:3]
        own = levels[stage]
        own[:] = [here + more for here, more in zip(own, growth, strict=True)]
        # The gradient that is handed back counts with the stage before.
        back = handed_on_bytes(stages, stage - 1) if action.kind in "BI" else 0
        if back:
            own[0] -= back
            levels[stage - 1][0] += back
    return levels


def _total(levels: _Levels) -> int:
    return sum(map(sum, levels.values()))
