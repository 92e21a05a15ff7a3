"""What a stage holds, and what each of its actions adds for a moment and for good.

The level of a stage, above what is always there, for one microbatch:

                  ______                     _______
            _____|      |___________________|       |____
           |   F          kept                B          |        F ... B

                  ______                 ____
            _____|      |_______________|    |___   __
           |   F          kept            I      |_|  |_          F ... I .. W
                                             held    W

A peak is counted above the level at the start of its action. Walking through the
layers i of a stage, with A_i kept and H_i held by each:

    F of layer l   sum(A_i, i < l) + forward peak of l
    B of layer l   what recompute of l brings back + backward peak of l
                   - sum(A_i, i > l), which is freed already
    I of layer l   the same with I's peak, + sum(max(H_i - A_i, 0), i > l)
    W of layer l   W's peak; all that is held is taken to be there until its end

Of the first stage PyTorch does nothing in I and all of B in W.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.memory.at_peak import kept_bytes
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
        forward_peak_bytes: Highest level during F above that at its start [bytes].
        backward_peak_bytes: The same for B [bytes].
        input_grad_peak_bytes: The same for I [bytes].
        weight_grad_peak_bytes: The same for W [bytes].
    """

    weights_bytes: int = 0
    gradients_bytes: int = 0
    optimizer_bytes: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    kept_bytes: int = 0
    held_bytes: int = 0
    forward_peak_bytes: int = 0
    backward_peak_bytes: int = 0
    input_grad_peak_bytes: int = 0
    weight_grad_peak_bytes: int = 0


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
    held = sum(_held_bytes(*pair) for pair in zip(layers, recomputed, strict=True))
    kept = sum(kept_bytes(*pair) for pair in zip(layers, recomputed, strict=True))
    backward_peak = _backward_peak(layers, recomputed)
    return StageBytes(
        weights_bytes=num_parameters * optimizer.weight_bytes,
        gradients_bytes=num_parameters * optimizer.gradient_bytes,
        optimizer_bytes=num_parameters * optimizer.state_bytes,
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        kept_bytes=kept,
        held_bytes=kept if is_first else held,
        forward_peak_bytes=_forward_peak(layers, recomputed),
        backward_peak_bytes=backward_peak,
        input_grad_peak_bytes=0 if is_first else _input_grad_peak(layers, recomputed),
        weight_grad_peak_bytes=backward_peak if is_first else _weight_grad_peak(layers),
    )


def _held_bytes(layer: LayerProfile, recomputed: bool) -> int:
    """From I to W: nothing is known to go with I, and what was dropped is back."""
    return max(layer.activation_bytes, kept_bytes(layer, recomputed))


def _brought_back_bytes(layer: LayerProfile, recomputed: bool) -> int:
    return max(layer.activation_bytes - kept_bytes(layer, recomputed), 0)


def _forward_peak(layers: Sequence[LayerProfile], recomputed: Sequence[bool]) -> int:
    highest = below = 0
    for layer, again in zip(layers, recomputed, strict=True):
        highest = max(highest, below + layer.forward_peak_bytes)
        below += kept_bytes(layer, again)
    return highest


def _backward_peak(layers: Sequence[LayerProfile], recomputed: Sequence[bool]) -> int:
    highest = level = 0
    for layer, again in zip(layers[::-1], recomputed[::-1], strict=True):
        back = _brought_back_bytes(layer, again)
        highest = max(highest, level + back + layer.backward_peak_bytes)
        level -= kept_bytes(layer, again)
    return highest


def _input_grad_peak(layers: Sequence[LayerProfile], recomputed: Sequence[bool]) -> int:
    highest = level = 0
    for layer, again in zip(layers[::-1], recomputed[::-1], strict=True):
        back = _brought_back_bytes(layer, again)
        highest = max(highest, level + back + layer.backward_peak_bytes)
        level += max(_held_bytes(layer, again) - kept_bytes(layer, again), 0)
    return highest


def _weight_grad_peak(layers: Sequence[LayerProfile]) -> int:
    return max((layer.backward_peak_bytes for layer in layers), default=0)
