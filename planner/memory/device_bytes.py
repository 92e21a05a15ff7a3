"""What the stages of one device are to it: always there, and with each action.

With A kept, H held and G the gradients of a stage, `in` what it receives and `out`
what it makes at its boundaries, see `boundary`, the level grows by

    activations   A  with F,  -A with B,  H - A with I,  -H with W
    gradients     G  with the first B or W
    towards another device    out with F, in with B or I, until the end of the step
    towards the same device   out with F, out with B or I of the stage after,
                              -2 out with B or I
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from planner.memory.boundary import receive_buffer_bytes
from planner.memory.stage_bytes import StageBytes
from planner.plan import MemoryBreakdown
from planner.schedule.actions import Action, Kind


class Effect(NamedTuple):
    """What an action does to the level of a device.

    Attributes:
        activations_bytes: Kept, held and handed over more afterwards [bytes].
        gradients_bytes: The same for gradients [bytes].
        sent_bytes: The same for what is on its way to other devices [bytes].
        rise_bytes: How far the level rises meanwhile; never below 0 or the sum of the
            others [bytes].
    """

    activations_bytes: int
    gradients_bytes: int
    sent_bytes: int
    rise_bytes: int

    @property
    def growth_bytes(self) -> int:
        """By how much the level is higher afterwards [bytes]."""
        return self.activations_bytes + self.gradients_bytes + self.sent_bytes


# By stage, kind of action, and whether it is the stage's first B or W of the step.
Effects = Mapping[tuple[int, Kind, bool], Effect]


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


def sent_bytes(stages: Mapping[int, StageBytes], stage: int) -> tuple[int, int]:
    """What a stage sends to other devices for one microbatch.

    Args:
        stages: Memory of the device's stages by stage number.
        stage: One of them.

    Returns:
        Its output, and the gradient of its input; 0 where nothing is sent [bytes].
    """
    own = stages[stage]
    return (
        0 if stage + 1 in stages else own.output_bytes,
        0 if stage - 1 in stages else own.input_bytes,
    )


def held_bytes(stages: Mapping[int, StageBytes], stage: int) -> int:
    """What a microbatch leaves of a stage from I to W.

    Args:
        stages: Memory of the device's stages by stage number.
        stage: One of them.

    Returns:
        The size, with what of its boundaries within the device it outlives [bytes].
    """
    own = stages[stage]
    held = own.held_bytes
    if stage - 1 in stages:
        held += own.held_input_bytes
    if stage + 1 in stages:
        held += own.held_output_grad_bytes
    return held


def action_effects(stages: Mapping[int, StageBytes]) -> Effects:
    """What every action does to the level of a device.

    Args:
        stages: Memory of the device's stages by stage number.

    Returns:
        By stage, kind, and whether it makes the gradients.
    """
    found: dict[tuple[int, Kind, bool], Effect] = {}
    for stage, own in stages.items():
        kept, held = own.kept_bytes, held_bytes(stages, stage)
        handed_on, back = (handed_on_bytes(stages, s) for s in (stage, stage - 1))
        output, input_grad = sent_bytes(stages, stage)
        freed = back - 2 * handed_on - kept
        backward, first_backward = (
            own.backward_peak_bytes,
            own.first_backward_peak_bytes,
        )
        weight, first_weight = (
            own.weight_grad_peak_bytes,
            own.first_weight_grad_peak_bytes,
        )
        rows: tuple[tuple[Kind, int, int, int, int], ...] = (
            ("F", kept + handed_on, output, own.forward_peak_bytes, 0),
            ("B", freed, input_grad, backward, first_backward),
            ("I", freed + held, input_grad, own.input_grad_peak_bytes, 0),
            ("W", -held, 0, weight, first_weight),
        )
        for kind, activations, sent, peak, first_peak in rows:
            growth = activations + sent
            found[stage, kind, False] = Effect(
                activations, 0, sent, max(peak, growth, 0)
            )
            growth += own.gradients_bytes
            found[stage, kind, True] = Effect(
                activations, own.gradients_bytes, sent, max(first_peak, growth, 0)
            )
    return found


def buffer_bytes(
    stages: Mapping[int, StageBytes], stage: int, num_microbatches: int
) -> int:
    """Buffers of one stage to receive into from other devices.

    Args:
        stages: Memory of the device's stages by stage number.
        stage: One of them.
        num_microbatches: Of one step.

    Returns:
        The size of all buffers [bytes].
    """
    output, input_grad = sent_bytes(stages, stage)
    return receive_buffer_bytes(
        num_microbatches=num_microbatches, input_bytes=input_grad, output_bytes=output
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
        "optimizer": sum(stage.optimizer_bytes for stage in own),
        "communication": communication,
        "overhead": reserve_bytes,
    }
    return MemoryBreakdown(**items, total=sum(items.values()))


def with_gradients_made(row: Iterable[Action]) -> Iterator[tuple[Action, bool]]:
    """Go through a row and tell which actions make gradients.

    Args:
        row: Actions of one device, in order.

    Yields:
        Each action, and whether it is its stage's first B or W.
    """
    have: set[int] = set()
    for action in row:
        makes = action.kind in "BW" and action.stage not in have
        if makes:
            have.add(action.stage)
        yield action, makes


def left_for_step(row: Iterable[Action], stage: int) -> int:
    """How many gradients of inputs are still there when the optimizer steps.

    PyTorch leaves those of B in the buffers of the inputs until the next step; the
    engine lets go of those of I.

    Args:
        row: Actions of one device.
        stage: One of its stages.

    Returns:
        How many microbatches.
    """
    return sum(action.stage == stage and action.kind == "B" for action in row)
