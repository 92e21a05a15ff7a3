"""A profile for the terminal: a table by kind of layer, and what matters most."""

import math
from collections.abc import Sequence
from statistics import fmean, median

from planner.cards import CARDS, DEFAULT_CUDA_RESERVE_BYTES
from planner.least_cards import least_cards
from planner.memory import stage_parameters
from planner.model_profile import LayerProfile, ModelProfile
from planner.optimizers import OptimizerSpec, optimizer_spec, optimizers_for
from planner.table import format_table
from planner.units import MIB, format_bytes, format_count, format_figure, format_seconds

_HEADER = (
    *("layers", "parameters", "GFLOPs", "F ms", "B ms"),
    *("activation MiB", "recomputed MiB", "output MiB"),
)
# What is shown of a layer, besides its parameters, in the units of the header.
_FIGURES = (
    ("forward_flops", 1e-9),
    ("forward_s", 1e3),
    ("backward_s", 1e3),
    ("activation_bytes", 1 / MIB),
    ("recompute_activation_bytes", 1 / MIB),
    ("output_bytes", 1 / MIB),
)
# Layers of one kind share a row unless one of their figures differs by more.
_SAME_WITHIN = 0.05
_COMMON_CARD, _COMMON_CARD_NAME = "rtx3090", "24 GB"


def describe_profile(profile: ModelProfile) -> str:
    """Write what a profile says.

    Args:
        profile: Any profile.

    Returns:
        A heading, a table by kind of layer and three sentences, without a newline
        at the end; the figures are of one layer and one microbatch.
    """
    sentences = (
        state_sentence(profile),
        cost_sentence(profile),
        card_sentence(profile),
    )
    return "\n\n".join((_heading(profile), layer_table(profile), "\n".join(sentences)))


def _heading(profile: ModelProfile) -> str:
    model, device = profile.model, profile.device
    others = [x for x in profile.microbatch_sizes if x != profile.microbatch_size]
    also = f" (also of {', '.join(map(str, others))})" if others else ""
    how = "measured on" if device.kind == "measured" else "computed for"
    return (
        f"{model.id or 'model'}: {format_count(model.num_parameters)} parameters in "
        f"{len(profile.layers)} layers, {how} {device.name or 'a device'}, "
        f"{profile.dtype}, sequences of {profile.seq_len} tokens, "
        f"microbatches of {profile.microbatch_size}{also}"
    )


def layer_table(profile: ModelProfile) -> str:
    """Write one row for each kind of layer.

    Args:
        profile: Any profile.

    Returns:
        Means over the layers of a row; several rows of one kind name the first
        layer of each. The last row sums over all layers.
    """
    rows = []
    variants = layer_variants(profile.layers)
    kinds = [alike[0].kind for alike in variants]
    for alike in variants:
        first = alike[0]
        name = f" like {first.name}" if kinds.count(first.kind) > 1 else ""
        parameters = fmean(layer.num_parameters for layer in alike)
        figures = (
            factor * fmean(getattr(layer, key) for layer in alike)
            for key, factor in _FIGURES
        )
        label = f"{len(alike)} x {first.kind}{name}"
        rows.append((label, format_count(parameters), *map(format_figure, figures)))
    *sums, _ = (
        format_figure(factor * sum(getattr(layer, key) for layer in profile.layers))
        for key, factor in _FIGURES
    )
    num_parameters = stage_parameters(profile.layers, profile.ties)
    rows.append(("all", format_count(num_parameters), *sums, ""))
    return format_table(_HEADER, rows)


def layer_variants(
    layers: Sequence[LayerProfile],
) -> tuple[tuple[LayerProfile, ...], ...]:
    """Put layers of one kind and nearly one cost together, neighbours or not.

    Args:
        layers: Of a profile, in order.

    Returns:
        Groups in the order of their first layers.
    """
    groups: list[list[LayerProfile]] = []
    for layer in layers:
        alike = next((group for group in groups if _alike(group[0], layer)), None)
        if alike is None:
            groups.append([layer])
        else:
            alike.append(layer)
    return tuple(map(tuple, groups))


def _alike(one: LayerProfile, other: LayerProfile) -> bool:
    keys = ("num_parameters", *(key for key, _ in _FIGURES))
    return one.kind == other.kind and all(
        math.isclose(getattr(one, key), getattr(other, key), rel_tol=_SAME_WITHIN)
        for key in keys
    )


def state_sentence(profile: ModelProfile) -> str:
    """Say what training holds apart from activations, for each optimizer.

    Args:
        profile: Any profile.

    Returns:
        One sentence.
    """
    count = stage_parameters(profile.layers, profile.ties)
    states = ", ".join(
        f"{format_bytes(count * spec.bytes_per_parameter)} with {spec.title} "
        f"({spec.bytes_per_parameter} bytes a parameter)"
        for spec in _optimizers(profile)
    )
    return f"Training state (weights, gradients, optimizer): {states}."


def cost_sentence(profile: ModelProfile) -> str:
    """Say which layer takes longest, and how many blocks that is.

    Args:
        profile: Any profile.

    Returns:
        One sentence; a block is the median of the layers between the ends.
    """
    layers = profile.layers
    costliest = max(layers, key=_both_s)
    block_s = median(map(_both_s, layers[1:-1] or layers))
    takes = f"{format_seconds(_both_s(costliest))} for F and B"
    if not _both_s(costliest):
        return "The profile has no times."
    if costliest in layers[1:-1] and _both_s(costliest) < block_s * (1 + _SAME_WITHIN):
        last = layers[-1]
        return (
            f"No layer takes longer than a block, {takes}; {_called(last)} takes as "
            f"long as {format_figure(_both_s(last) / block_s)} blocks."
        )
    blocks = f", as long as {format_figure(_both_s(costliest) / block_s)} blocks"
    return (
        f"The costliest layer is {_called(costliest)}: it takes {takes}"
        f"{blocks if block_s else ''}."
    )


def card_sentence(profile: ModelProfile) -> str:
    """Say how many cards of the commonest kind are the least that could do.

    Args:
        profile: Any profile.

    Returns:
        One sentence, for the default optimizer and for the one that needs fewest.
    """
    budget_bytes = CARDS[_COMMON_CARD].memory_bytes - DEFAULT_CUDA_RESERVE_BYTES
    found = {
        x.title: least_cards(profile, x, budget_bytes) for x in _optimizers(profile)
    }
    title, count = next(iter(found.items()))
    fewest = min(found, key=lambda x: found[x] or math.inf)
    fewer = ""
    if (found[fewest] or math.inf) < (count or math.inf):
        fewer = f", {found[fewest]} with {fewest}"
    usable = f"{format_bytes(budget_bytes)} usable"
    plural = "card" if count == 1 else "cards"
    cards = f"{plural} of {_COMMON_CARD_NAME}"
    if count is None:
        return (
            f"No number of {cards} can do with {title}{fewer}: some layer alone needs "
            f"more than the {usable} of one."
        )
    return (
        f"At least {count} {cards} with {title}{fewer}: fewer cannot hold the training "
        f"state and one microbatch under recompute, {usable} on each; solve tells what "
        "fits."
    )


def _optimizers(profile: ModelProfile) -> tuple[OptimizerSpec, ...]:
    names = optimizers_for(profile.dtype)
    return tuple(optimizer_spec(name, profile.dtype) for name in names)


def _both_s(layer: LayerProfile) -> float:
    return layer.forward_s + layer.backward_s


def _called(layer: LayerProfile) -> str:
    return f"the {layer.name}" if layer.name == layer.kind else layer.name
