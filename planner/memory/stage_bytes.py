"""What a stage holds, and what each of its actions adds for a moment and for good.

The level of a stage, above what is always there, for one microbatch:

                  ______                     _______
            _____|      |___________________|       |____
           |   F          kept                B          |        F ... B

                  ______                 ____
            _____|      |_______________|    |___   __
           |   F          kept            I      |_|  |_          F ... I .. W
                                             held    W

A peak is counted above the level at the start of its action; how high each goes is
found by walking through the layers (`stage_levels`). The first B or W of a step also
makes the gradients, which stay until the optimizer's step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.memory.stage_levels import stage_levels, step_peak_bytes
from planner.model_profile import LayerProfile
from planner.optimizers import OptimizerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBytes:
    """Memory of one stage: `StageTimes` for bytes.

    Attributes:
        weights_bytes: Parameters in the training dtype [bytes].
        gradients_bytes: Gradients of the parameters [bytes].
        optimizer_bytes: States of the optimizer and master weights [bytes].
        input_bytes: Taken for one microbatch; 0 on the first stage [bytes].
        output_bytes: Made for one microbatch; 0 on the last stage [bytes].
        kept_bytes: What one microbatch leaves from F to B or I [bytes].
        held_bytes: What one microbatch leaves from I to W [bytes].
        held_input_bytes: More of it, if the stage before is on the same device
            [bytes].
        held_output_grad_bytes: More of it, if the stage after is on the same device
            [bytes].
        forward_peak_bytes: Highest level during F above that at its start [bytes].
        backward_peak_bytes: The same for B [bytes].
        first_backward_peak_bytes: The same for a step's first B [bytes].
        input_grad_peak_bytes: The same for I [bytes].
        weight_grad_peak_bytes: The same for W [bytes].
        first_weight_grad_peak_bytes: The same for a step's first W [bytes].
        step_peak_bytes: The same for the optimizer's step [bytes].
    """

    weights_bytes: int = 0
    gradients_bytes: int = 0
    optimizer_bytes: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    kept_bytes: int = 0
    held_bytes: int = 0
    held_input_bytes: int = 0
    held_output_grad_bytes: int = 0
    forward_peak_bytes: int = 0
    backward_peak_bytes: int = 0
    first_backward_peak_bytes: int = 0
    input_grad_peak_bytes: int = 0
    weight_grad_peak_bytes: int = 0
    first_weight_grad_peak_bytes: int = 0
    step_peak_bytes: int = 0


def stage_bytes(
    layers: Sequence[LayerProfile],
    *,
    recomputed: Sequence[bool],
    num_parameters: int,
    optimizer: OptimizerSpec,
    input_bytes: int,
    output_bytes: int,
    is_first: bool,
) -> StageBytes:
    """Walk one microbatch through a stage.

    Args:
        layers: Of the stage, in order.
        recomputed: One flag a layer.
        num_parameters: Of the stage, see `stage_parameters`.
        optimizer: What it holds per parameter.
        input_bytes: Taken for one microbatch; 0 on the first stage [bytes].
        output_bytes: Made for one microbatch; 0 on the last stage [bytes].
        is_first: Whether it begins with the first layer of the model.

    Returns:
        Its memory.
    """
    levels = stage_levels(
        layers,
        recomputed=recomputed,
        gradient_bytes=optimizer.gradient_bytes,
        is_first=is_first,
        input_bytes=input_bytes,
        output_bytes=output_bytes,
    )
    kept, held = levels.kept_bytes, levels.weight_kept_bytes
    gradients = num_parameters * optimizer.gradient_bytes
    # Layers of one stage may share parameters.
    in_first = min(
        levels.first_backward_peak_bytes, levels.backward_peak_bytes + gradients
    )
    in_first_weight = min(
        levels.first_weight_grad_peak_bytes, levels.weight_grad_peak_bytes + gradients
    )
    return StageBytes(
        weights_bytes=num_parameters * optimizer.weight_bytes,
        gradients_bytes=gradients,
        optimizer_bytes=num_parameters * optimizer.state_bytes,
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        kept_bytes=kept,
        held_bytes=held,
        held_input_bytes=min(layers[0].kept_input_bytes, input_bytes),
        held_output_grad_bytes=min(layers[-1].kept_output_grad_bytes, output_bytes),
        forward_peak_bytes=levels.forward_peak_bytes,
        backward_peak_bytes=levels.backward_peak_bytes - kept,
        first_backward_peak_bytes=in_first - kept,
        input_grad_peak_bytes=levels.input_grad_peak_bytes - kept,
        weight_grad_peak_bytes=levels.weight_grad_peak_bytes - held,
        first_weight_grad_peak_bytes=in_first_weight - held,
        step_peak_bytes=step_peak_bytes(layers, optimizer),
    )
