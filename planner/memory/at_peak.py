"""What a stage alone on its card needs at its fullest moment, by a formula.

Weights, gradients and optimizer states are always there. What comes on top is
found by walking through the layers of a stage while the other microbatches in
flight rest. With A_i the bytes that layer i keeps from F to B (less where it is
recomputed), A their sum and k the microbatches in flight, the level reaches

    in F of layer l   (k - 1) A + sum(A_i, i < l)  + forward peak of l
    in B of layer l   (k - 1) A + sum(A_i, i <= l) + what recompute of l brings
                      back + backward peak of l
    between them      k A

`over_time` finds the same level for 1F1B and GPipe by following their order, and
is right where this is not: several stages on a card, and I and W.

Known limitations: fragmentation of the allocator is left to the reserve; W is
taken to free what B frees.
"""

from collections.abc import Sequence

from planner.memory.boundary import communication_bytes
from planner.model_profile import LayerProfile
from planner.optimizers import OptimizerSpec
from planner.plan import MemoryBreakdown


def kept_bytes(layer: LayerProfile, recomputed: bool) -> int:
    """What one microbatch leaves in a layer from F to B.

    Args:
        layer: The layer.
        recomputed: Whether it drops its activations after F.

    Returns:
        The size [bytes].
    """
    if recomputed:
        return layer.recompute_activation_bytes
    return layer.activation_bytes


def layer_peak_bytes(layer: LayerProfile, recomputed: bool) -> int:
    """Highest level that one layer reaches, above the layers before it.

    Args:
        layer: The layer.
        recomputed: Whether it runs F again before B.

    Returns:
        The larger of the peaks of F and B [bytes].
    """
    kept = kept_bytes(layer, recomputed)
    brought_back = max(layer.activation_bytes - kept, 0) if recomputed else 0
    in_backward = kept + brought_back + layer.backward_peak_bytes
    return max(layer.forward_peak_bytes, in_backward)


def activation_level(
    layers: Sequence[LayerProfile], recomputed: Sequence[bool]
) -> tuple[int, int]:
    """Walk one microbatch through a stage.

    Args:
        layers: Of the stage, in order.
        recomputed: One flag a layer.

    Returns:
        What the microbatch keeps in all, and the highest level it reaches; with k
        in flight the stage needs `(k - 1) * kept + highest` [bytes].
    """
    kept = highest = 0
    for layer, again in zip(layers, recomputed, strict=True):
        highest = max(highest, kept + layer_peak_bytes(layer, again))
        kept += kept_bytes(layer, again)
    return kept, max(highest, kept)


def stage_memory(
    layers: Sequence[LayerProfile],
    *,
    recomputed: Sequence[bool],
    num_in_flight: int,
    num_parameters: int,
    optimizer: OptimizerSpec,
    num_microbatches: int,
    input_bytes: int,
    output_bytes: int,
    reserve_bytes: int,
) -> MemoryBreakdown:
    """What a stage needs at its fullest moment.

    Args:
        layers: Of the stage, in order.
        recomputed: One flag a layer.
        num_in_flight: Most microbatches held at once, at least 1.
        num_parameters: Of the stage, see `stage_parameters`.
        optimizer: What it holds per parameter.
        num_microbatches: Of one step.
        input_bytes: Received for one microbatch; 0 on the first stage [bytes].
        output_bytes: Sent for one microbatch; 0 on the last stage [bytes].
        reserve_bytes: Kept free on the card [bytes].

    Returns:
        The items and their sum [bytes].
    """
    kept, highest = activation_level(layers, recomputed)
    items = {
        "weights": num_parameters * optimizer.weight_bytes,
        "gradients": num_parameters * optimizer.gradient_bytes,
        "optimizer": num_parameters * optimizer.state_bytes,
        "activations": num_in_flight * kept,
        "workspace": highest - kept,
        "communication": communication_bytes(
            num_microbatches=num_microbatches,
            input_bytes=input_bytes,
            output_bytes=output_bytes,
        ),
        "overhead": reserve_bytes,
    }
    return MemoryBreakdown(**items, total=sum(items.values()))
