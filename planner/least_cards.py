"""How many cards are the least that could hold a model in training.

A card holds at least the training state of its layers and what one microbatch
needs at its fullest moment, every layer under recompute where that is less. A run
of layers never needs less than a part of it, so filling one card after the other
as far as it goes gives the smallest number.

Known limitations: a lower bound. More microbatches in flight and the buffers at the
boundaries come on top; `solve` tells what really fits.
"""

from collections.abc import Sequence

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
        _filled(profile, profile.layers_at(size), optimizer, budget_bytes)
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


def _filled(
    profile: ModelProfile,
    layers: Sequence[LayerProfile],
    optimizer: OptimizerSpec,
    budget_bytes: int,
) -> int | None:
    """Cards in use once each is filled up to a legal cut."""
    ends = [i + 1 for i, legal in enumerate(profile.legal_cuts()) if legal]
    first = last = 0
    num_cards = 1
    for end in (*ends, len(layers)):
        if least_bytes(layers[first:end], profile.ties, optimizer) > budget_bytes:
            if least_bytes(layers[last:end], profile.ties, optimizer) > budget_bytes:
                return None
            num_cards += first != last
            first = last
        last = end
    return num_cards
