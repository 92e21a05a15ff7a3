"""How many cards are the least that could hold a model in training.

The cards together hold weights and optimizer states, tied parameters at least once.
When a microbatch has been through all layers they also hold what each layer keeps for
it, under recompute where that is less, and at the end of the step the gradients: both
at once only if there is a second microbatch. A card that could hold more than one
layer may hold any others of them, since it may work on several stages.

Known limitations: a lower bound. More microbatches in flight, buffers at the
boundaries and layers that do not fill a card come on top; `solve` tells what really
fits.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from planner.memory import (
    Levels,
    at_boundaries,
    layer_levels,
    levels_of,
    stage_parameters,
)
from planner.model_profile import LayerProfile, ModelProfile
from planner.optimizers import OptimizerSpec


def least_cards(
    profile: ModelProfile, optimizer: OptimizerSpec, budget_bytes: int
) -> int | None:
    """No plan needs fewer equal cards than this.

    Args:
        profile: Of the model; the most favourable microbatch size counts.
        optimizer: What it holds per parameter.
        budget_bytes: What a stage may use of each card [bytes].

    Returns:
        The number; None if layers that cannot be parted are too large for a card.
    """
    counts = [
        _full_cards(profile, profile.layers_at(size), optimizer, budget_bytes)
        for size in profile.microbatch_sizes
    ]
    return min((count for count in counts if count is not None), default=None)


def least_bytes(
    layers: Sequence[LayerProfile],
    ties: Sequence[tuple[str, str]],
    optimizer: OptimizerSpec,
) -> int:
    """What a run of layers needs on a card at the very least.

    Args:
        layers: The run, in order.
        ties: Pairs of layer names that share parameters.
        optimizer: What it holds per parameter.

    Returns:
        Training state and one microbatch at its fullest moment [bytes].
    """
    parameters = stage_parameters(layers, ties)
    gradients = parameters * optimizer.gradient_bytes
    levels = levels_of(_least_levels(layers))
    highest = max(levels.forward_bytes, levels.first_backward_bytes, gradients)
    return parameters * optimizer.lasting_bytes + highest


def _full_cards(
    profile: ModelProfile,
    layers: Sequence[LayerProfile],
    optimizer: OptimizerSpec,
    budget_bytes: int,
) -> int | None:
    """Cards that are full; None if what is never parted is too large for one."""
    ends = [i + 1 for i, legal in enumerate(profile.legal_cuts()) if legal]
    for part in pairwise([0, *ends, len(layers)]):
        if least_bytes(layers[slice(*part)], profile.ties, optimizer) > budget_bytes:
            return None
    parameters = stage_parameters(layers, profile.ties)
    kept = levels_of(_least_levels(layers)).kept_bytes
    needed = parameters * optimizer.lasting_bytes
    needed += max(kept, parameters * optimizer.gradient_bytes)
    return max(-(-needed // budget_bytes), 1)


def _least_levels(layers: Sequence[LayerProfile]) -> Iterator[Levels]:
    """The levels of each layer, the lower ones of those with and without recompute."""
    for place, layer in enumerate(layers):
        (own,) = at_boundaries(
            [layer],
            layers[place - 1].output_bytes if place else 0,
            layer.output_bytes if place < len(layers) - 1 else 0,
        )
        both = (layer_levels(own, x) for x in (False, True))
        yield Levels(*map(min, zip(*both, strict=True)))
