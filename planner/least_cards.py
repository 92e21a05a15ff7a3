"""How many cards are the least that could hold a model in training.

When a microbatch has been through all layers, the cards together hold the training
state, tied parameters at least once, and what each layer keeps for it, under
recompute where that is less. A card that could hold more than one layer may hold
any others of them, since it may work on several stages.

Known limitations: a lower bound. More microbatches in flight, buffers at the
boundaries and layers that do not fill a card come on top; `solve` tells what really
fits.
"""

from collections.abc import Sequence
from itertools import pairwise

from planner.memory import kept_bytes, layer_peak_bytes, stage_parameters
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
    kept = highest = 0
    for layer in layers:
        peak = min(layer_peak_bytes(layer, again) for again in (False, True))
        highest = max(highest, kept + peak)
        kept += min(kept_bytes(layer, again) for again in (False, True))
    state = stage_parameters(layers, ties) * optimizer.bytes_per_parameter
    return state + max(highest, kept)


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
    state = stage_parameters(layers, profile.ties) * optimizer.bytes_per_parameter
    kept = sum(min(kept_bytes(x, again) for again in (False, True)) for x in layers)
    return max(-(-(state + kept) // budget_bytes), 1)
