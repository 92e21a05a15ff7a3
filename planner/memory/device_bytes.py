"""What the stages of one device are to it: always there, and with each action.

Stages next to each other on one device share their boundary, see `boundary`; with
A kept, H held and b the output handed on (0 where the next stage is elsewhere):

    the level grows by    A + b    with F
                         -A - 2 b  with B, and by the b of the stage before
                      H - A - 2 b  with I, and by the b of the stage before
                         -H        with W
"""

from collections.abc import Mapping

from planner.memory.boundary import communication_bytes
from planner.memory.stage_bytes import StageBytes
from planner.plan import MemoryBreakdown
from planner.schedule.actions import Kind


def handed_on_bytes(stages: Mapping[int, StageBytes], stage: int) -> int:
    """What a stage hands to the next one without sending it.

    Args:
        stages: Memory of the device's stages by stage number.
        stage: Any number.

    Returns:
        Its output for one microbatch, or of the gradient that comes back; 0 if it or
        the next stage is on another device [bytes].
    """
    is_here = stage in stages and stage + 1 in stages
    return stages[stage].output_bytes if is_here else 0


def action_bytes(
    stages: Mapping[int, StageBytes],
) -> dict[tuple[int, Kind], tuple[int, int]]:
    """What each kind of action does to the level of a device.

    Args:
        stages: Memory of the device's stages by stage number.

    Returns:
        By stage and kind: by how much the level is higher afterwards, and how far it
        rises meanwhile, which is never below 0 or the former [bytes].
    """
    effects: dict[tuple[int, Kind], tuple[int, int]] = {}
    for stage, own in stages.items():
        kept, held = own.kept_bytes, own.held_bytes
        handed_on = handed_on_bytes(stages, stage)
        after_gradient = handed_on_bytes(stages, stage - 1) - 2 * handed_on - kept
        rows: tuple[tuple[Kind, int, int], ...] = (
            ("F", kept + handed_on, own.forward_peak_bytes),
            ("B", after_gradient, own.backward_peak_bytes),
            ("I", after_gradient + held, own.input_grad_peak_bytes),
            ("W", -held, own.weight_grad_peak_bytes),
        )
        for kind, growth, peak in rows:
            effects[stage, kind] = growth, max(peak, growth, 0)
    return effects


def buffer_bytes(
    stages: Mapping[int, StageBytes], stage: int, num_microbatches: int
) -> int:
    """Buffers of one stage towards other devices.

    Args:
        stages: Memory of the device's stages by stage number.
        stage: One of them.
        num_microbatches: Of one step.

    Returns:
        The size of all buffers [bytes].
    """
    own = stages[stage]
    return communication_bytes(
        num_microbatches=num_microbatches,
        input_bytes=0 if stage - 1 in stages else own.input_bytes,
        output_bytes=0 if stage + 1 in stages else own.output_bytes,
    )


def static_memory(
    stages: Mapping[int, StageBytes], num_microbatches: int, reserve_bytes: int
) -> MemoryBreakdown:
    """What is there all the time.

    Args:
        stages: Memory of the device's stages by stage number.
        num_microbatches: Of one step.
        reserve_bytes: Kept free on the card [bytes].

    Returns:
        The items and their sum [bytes].
    """
    own = stages.values()
    communication = sum(buffer_bytes(stages, s, num_microbatches) for s in stages)
    items = {
        "weights": sum(stage.weights_bytes for stage in own),
        "gradients": sum(stage.gradients_bytes for stage in own),
        "optimizer": sum(stage.optimizer_bytes for stage in own),
        "communication": communication,
        "overhead": reserve_bytes,
    }
    return MemoryBreakdown(**items, total=sum(items.values()))
