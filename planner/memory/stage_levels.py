"""How high one microbatch takes a stage, and what it leaves, in every action.

Each action walks through the layers of the stage: F upwards, B and I downwards, W
upwards again, in the order of the parameters. With the figures of `model_profile` (A
kept from F on, or a if the layer is recomputed; C until the end of I, K from I to W, R
until the end of W; G its gradients) the level in layer l, above what other
microbatches keep, is

    F         sum(a_i, i < l)                                       + forward peak
    B         sum(a_i, i < l) + A_l                                 + backward peak
    first B   sum(a_i, i < l) + A_l                + sum(G_i, i > l) + its peak
    I         sum(a_i, i < l) + A_l                + sum(C_i, i > l) + input peak
    W         sum(R_i, i < l) + K_l                + sum(K_i, i > l) + weight peak

These are sums because of how PyTorch splits the backward of a whole stage: I keeps
the graph, and each group of parameters that waits for W holds all of it below.
On the first stage PyTorch does nothing in I, and all of B in W.

Known limitations: tables and masks that a model makes around its layers once a
microbatch are not counted, nor the stand-in for the embedding during F (one
hidden state); of a stage's output the gradient is counted among what I leaves although
it arrived in a buffer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.memory.at_peak import kept_bytes
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
    """

    kept_bytes: int
    weight_kept_bytes: int
    forward_peak_bytes: int
    backward_peak_bytes: int
    first_backward_peak_bytes: int
    input_grad_peak_bytes: int
    weight_grad_peak_bytes: int


def stage_levels(
    layers: Sequence[LayerProfile],
    *,
    recomputed: Sequence[bool],
    gradient_bytes: int,
    is_first: bool,
) -> StageLevels:
    """Walk one microbatch through the actions of a stage.

    Args:
        layers: Of the stage, in order.
        recomputed: One flag a layer.
        gradient_bytes: Of one parameter's gradient [bytes].
        is_first: Whether it is the first stage of the model.

    Returns:
        Its levels. Where a profile does not know what I and W need, they count as B,
        and I frees nothing.
    """
    pairs = list(zip(map(_complete, layers), recomputed, strict=True))
    below = forward = backward = first = in_input_grad = 0
    gradients = sum(layer.num_parameters for layer in layers) * gradient_bytes
    after_input = sum(layer.input_grad_activation_bytes for layer, _ in pairs)
    for layer, again in pairs:
        gradients -= layer.num_parameters * gradient_bytes
        after_input -= layer.input_grad_activation_bytes
        kept = kept_bytes(layer, again)
        forward = max(forward, below + layer.forward_peak_bytes)
        whole = below + max(kept, layer.activation_bytes)
        backward = max(backward, whole + layer.backward_peak_bytes)
        first = max(first, whole + layer.first_backward_peak_bytes + gradients)
        level = whole + layer.input_grad_peak_bytes + after_input
        in_input_grad = max(in_input_grad, level)
        below += kept
    weight_kept, in_weight_grad = _weight_grad_levels([layer for layer, _ in pairs])
    levels = StageLevels(
        kept_bytes=below,
        weight_kept_bytes=weight_kept,
        forward_peak_bytes=max(forward, below),
        backward_peak_bytes=max(backward, below),
        first_backward_peak_bytes=max(first, below),
        input_grad_peak_bytes=max(in_input_grad, below, weight_kept),
        weight_grad_peak_bytes=max(in_weight_grad, weight_kept),
    )
    return _unsplit(levels) if is_first else levels


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
        needed = layer.largest_parameter * optimizer.step_bytes
        highest = max(highest, needed - dropped)
        dropped += layer.num_parameters * optimizer.gradient_bytes
    return highest


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
    waiting = level = sum(layer.weight_activation_bytes for layer in layers)
    highest = 0
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
    )
