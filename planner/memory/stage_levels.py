"""How high one microbatch takes a stage, and what it leaves, in every action.

Each action walks through the layers of the stage: F upwards, B and I downwards, W
upwards again, in the order of the parameters. F, B and I are told in `layer_levels`.
With the figures of `model_profile` (K kept from I to W, R until the end of W) the level
of W in layer l, above what other microbatches keep, is

    sum(R_i, i < l) + K_l + sum(K_i, i > l) + weight peak

K and R differ only in models whose graph cannot end between layers: there I keeps the
graph, and each group of parameters that waits for W holds all of it below.
On the first stage PyTorch does nothing in I, and all of B in W.

What lies at the boundary is left out (`boundary`). In a step's first W all gradients
count from its start.

Known limitations: tables and masks that a model makes around its layers once a
microbatch are not counted, nor the stand-in for the embedding during F (one
hidden state).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.memory.boundary import begins_stage, ends_stage
from planner.memory.layer_levels import layer_levels, levels_of
from planner.model_profile import LayerProfile
from planner.optimizers import OptimizerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLevels:
    """Bytes of one microbatch on one stage.

    Attributes:
        kept_bytes: From F to B or I [bytes].
        weight_kept_bytes: From I to W [bytes].
        forward_peak_bytes: Highest level in F [bytes].
        backward_peak_bytes: Highest level in B [bytes].
        first_backward_peak_bytes: The same in a step's first B, with the gradients
            it makes; until then the stage has none [bytes].
        input_grad_peak_bytes: Highest level in I [bytes].
        weight_grad_peak_bytes: Highest level in W [bytes].
        first_weight_grad_peak_bytes: The same in a step's first W, with the gradients
            it makes [bytes].
    """

    kept_bytes: int
    weight_kept_bytes: int
    forward_peak_bytes: int
    backward_peak_bytes: int
    first_backward_peak_bytes: int
    input_grad_peak_bytes: int
    weight_grad_peak_bytes: int
    first_weight_grad_peak_bytes: int


def stage_levels(
    layers: Sequence[LayerProfile],
    *,
    recomputed: Sequence[bool],
    gradient_bytes: int,
    is_first: bool,
    input_bytes: int = 0,
    output_bytes: int = 0,
) -> StageLevels:
    """Walk one microbatch through the actions of a stage.

    Args:
        layers: Of the stage, in order.
        recomputed: One flag a layer.
        gradient_bytes: Of one parameter's gradient [bytes].
        is_first: Whether it is the first stage of the model.
        input_bytes: Taken at its boundary; 0 leaves its first layer as it is [bytes].
        output_bytes: Made at its boundary; the same for its last layer [bytes].

    Returns:
        Its levels. Where a profile does not know what I and W need, they count as B,
        and I frees nothing.
    """
    own = at_boundaries(layers, input_bytes, output_bytes)
    whole = levels_of(
        layer_levels(layer, again, gradient_bytes)
        for layer, again in zip(own, recomputed, strict=True)
    )
    weight_kept, in_weight_grad = _weight_grad_levels(own)
    levels = StageLevels(
        kept_bytes=whole.kept_bytes,
        weight_kept_bytes=weight_kept,
        forward_peak_bytes=whole.forward_bytes,
        backward_peak_bytes=whole.backward_bytes,
        first_backward_peak_bytes=whole.first_backward_bytes,
        input_grad_peak_bytes=max(
            whole.input_grad_bytes, whole.kept_bytes, weight_kept
        ),
        weight_grad_peak_bytes=in_weight_grad,
        first_weight_grad_peak_bytes=in_weight_grad + whole.gradients_bytes,
    )
    return _unsplit(levels) if is_first else levels


def at_boundaries(
    layers: Sequence[LayerProfile], input_bytes: int, output_bytes: int
) -> list[LayerProfile]:
    """The layers of a stage without what counts to its boundaries.

    Args:
        layers: Of the stage, in order.
        input_bytes: Taken for one microbatch; 0 on the first stage [bytes].
        output_bytes: Made for one microbatch; 0 on the last stage [bytes].

    Returns:
        The same layers; all figures of I, W and the first B are known.
    """
    own = [_complete(layer) for layer in layers]
    if input_bytes:
        own[0] = begins_stage(own[0], input_bytes)
    if output_bytes:
        own[-1] = ends_stage(own[-1], output_bytes)
    return own


def step_peak_bytes(layers: Sequence[LayerProfile], optimizer: OptimizerSpec) -> int:
    """What the optimizer's step needs above weights, gradients and states.

    It goes through the parameters in order and drops their gradients on the way.

    Args:
        layers: Of the stage, in order.
        optimizer: What it holds and needs.

    Returns:
        The highest level, at least 0 [bytes].
    """
    highest = dropped = 0
    for layer in layers:
        highest = max(highest, layer_step_bytes(layer, optimizer) - dropped)
        dropped += layer.num_parameters * optimizer.gradient_bytes
    return highest


def layer_step_bytes(layer: LayerProfile, optimizer: OptimizerSpec) -> int:
    """What the optimizer needs while it steps one layer.

    Args:
        layer: Any layer.
        optimizer: What it needs for a parameter.

    Returns:
        On top of weights, gradients and states [bytes].
    """
    at_once = layer.largest_parameter
    if optimizer.step_parameters:
        at_once = min(at_once, optimizer.step_parameters)
    return at_once * optimizer.step_bytes


def _complete(layer: LayerProfile) -> LayerProfile:
    """A layer whose figures for I, W and the first B are all known."""
    peak = layer.backward_peak_bytes
    first = layer.first_backward_peak_bytes or peak
    if layer.weight_activation_bytes:
        return replace(
            layer,
            first_backward_peak_bytes=first,
            input_grad_activation_bytes=layer.input_grad_activation_bytes
            or layer.weight_activation_bytes,
            input_grad_peak_bytes=layer.input_grad_peak_bytes or peak,
            weight_grad_peak_bytes=layer.weight_grad_peak_bytes or peak,
        )
    return replace(
        layer,
        first_backward_peak_bytes=first,
        input_grad_activation_bytes=layer.activation_bytes,
        weight_activation_bytes=layer.activation_bytes,
        weight_grad_activation_bytes=layer.activation_bytes,
        input_grad_peak_bytes=peak,
        weight_grad_peak_bytes=peak,
    )


def _weight_grad_levels(layers: Sequence[LayerProfile]) -> tuple[int, int]:
    """What waits for W, and the highest level during W."""
    waiting = level = highest = sum(x.weight_activation_bytes for x in layers)
    for layer in layers:
        highest = max(highest, level + layer.weight_grad_peak_bytes)
        level -= layer.weight_activation_bytes - layer.weight_grad_activation_bytes
    return waiting, highest


def _unsplit(levels: StageLevels) -> StageLevels:
    """I does nothing, W is all of B."""
    return replace(
        levels,
        weight_kept_bytes=levels.kept_bytes,
        input_grad_peak_bytes=levels.kept_bytes,
        weight_grad_peak_bytes=levels.backward_peak_bytes,
        first_weight_grad_peak_bytes=levels.first_backward_peak_bytes,
    )
