"""How high one microbatch takes a run of layers in F, B, the first B and I.

With A_i the bytes that layer i keeps from F to B (a_i of them if it is recomputed,
which then come back) and C_i those it keeps to the end of I, the level above what other
microbatches keep is, in layer l,

    F         sum(a_i, i < l)                                       + forward peak
    B         sum(a_i, i < l) + A_l                                 + backward peak
    first B   sum(a_i, i < l) + A_l  + sum(gradients of i, i > l)   + its peak
    I         sum(a_i, i < l) + A_l  + sum(C_i, i > l)              + input peak

These are prefix sums and maxima, so the levels of a run follow from those of its
parts.
"""

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

from planner.model_profile import LayerProfile


class Levels(NamedTuple):
    """Bytes of one microbatch in a run of layers.

    Attributes:
        kept_bytes: From F to B or I [bytes].
        gradients_bytes: Gradients of the parameters [bytes].
        forward_bytes: Highest level in F [bytes].
        backward_bytes: Highest level in B [bytes].
        first_backward_bytes: The same in a step's first B, with the gradients it
            makes: until then there are none [bytes].
        input_grad_kept_bytes: To the end of I [bytes].
        input_grad_bytes: Highest level in I [bytes].
    """

    kept_bytes: int = 0
    gradients_bytes: int = 0
    forward_bytes: int = 0
    backward_bytes: int = 0
    first_backward_bytes: int = 0
    input_grad_kept_bytes: int = 0
    input_grad_bytes: int = 0

    def followed_by(self, other: "Levels") -> "Levels":
        """The levels of this run and another one after it.

        Args:
            other: Of the layers after.

        Returns:
            The levels of both together.
        """
        kept, gradients, forward, backward, first, after_input, in_input = self
        return Levels(
            kept + other.kept_bytes,
            gradients + other.gradients_bytes,
            max(forward, kept + other.forward_bytes),
            max(backward, kept + other.backward_bytes),
            max(first + other.gradients_bytes, kept + other.first_backward_bytes),
            after_input + other.input_grad_kept_bytes,
            max(in_input + other.input_grad_kept_bytes, kept + other.input_grad_bytes),
        )


def layer_levels(
    layer: LayerProfile, recomputed: bool, gradient_bytes: int = 0
) -> Levels:
    """The levels of one layer.

    Args:
        layer: The layer.
        recomputed: Whether it drops its activations after F.
        gradient_bytes: Of one parameter's gradient [bytes].

    Returns:
        Its levels. While it is recomputed, its input is there as well as all that
        autograd keeps.
    """
    kept = in_backward = layer.activation_bytes
    if recomputed:
        kept = layer.recompute_activation_bytes
        in_backward += max(kept - layer.kept_input_bytes, 0)
    first_peak = layer.first_backward_peak_bytes or layer.backward_peak_bytes
    gradients = layer.num_parameters * gradient_bytes
    after_input = layer.input_grad_activation_bytes
    return Levels(
        kept_bytes=kept,
        gradients_bytes=gradients,
        forward_bytes=max(layer.forward_peak_bytes, kept),
        backward_bytes=max(in_backward + layer.backward_peak_bytes, kept),
        first_backward_bytes=max(in_backward + first_peak, kept, gradients),
        input_grad_kept_bytes=after_input,
        input_grad_bytes=max(in_backward + layer.input_grad_peak_bytes, after_input),
    )


def levels_of(layers: Iterable[Levels]) -> Levels:
    """The levels of a run of layers.

    Args:
        layers: Of each layer, in order.

    Returns:
        The levels of all together.
    """
    return reduce(Levels.followed_by, layers, Levels())
