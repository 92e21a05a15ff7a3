"""Build one stage of a model, with its weights, on its device."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from planner.chain.layers import Chain
from planner.chain.skeleton import build_skeleton
from planner.chain.source import DTYPES, ModelSource
from planner.chain.stage_module import StageModule
from planner.chain.weights import (
    draw_weights,
    empty_weights,
    load_weights,
    settle_weights,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecipe:
    """Which part of a model a stage is, and how it is computed.

    Attributes:
        first: Index of its first layer.
        last: Index of its last layer, inclusive.
        dtype: `float32` or `bfloat16`.
        attention: Attention implementation of transformers.
        recompute: Names of layers to recompute.
    """

    first: int
    last: int
    dtype: str
    attention: str
    recompute: tuple[str, ...] = ()


def build_stage(
    source: ModelSource,
    chain: Chain,
    recipe: StageRecipe,
    *,
    device: torch.device,
    seed: int | None,
    empty: bool = False,
    skeleton: torch.nn.Module | None = None,
) -> StageModule:
    """Cut a stage out of a model and fill in its parameters.

    Args:
        source: The model.
        chain: Its layers.
        recipe: Which part of it.
        device: Where the stage computes.
        seed: Draw the parameters from this seed; None loads the checkpoint. Those
            of a user's module stay as its factory made them.
        empty: Do neither, somebody else will fill them in.
        skeleton: The whole model if it has been built before; it is used up.

    Returns:
        The stage in training mode, parameters on `device`.

    Raises:
        ModelError: The weights cannot be loaded.
    """
    model = skeleton or build_skeleton(
        source, dtype=DTYPES[recipe.dtype], attention=recipe.attention
    )
    stage = StageModule(
        model,
        chain,
        first=recipe.first,
        last=recipe.last,
        recompute=recipe.recompute,
    )
    if source.factory is not None:
        settle_weights(stage, device)
    elif empty:
        empty_weights(stage, device)
    elif seed is None:
        load_weights(stage, source, device)
    else:
        draw_weights(stage, device, seed=seed)
    return stage


def share_parameters(stages: Sequence[StageModule]) -> dict[str, torch.nn.Parameter]:
    """Make stages on one device hold a tied parameter once.

    Args:
        stages: Of one device; those that come later take what an earlier one has.

    Returns:
        The parameters of all stages by canonical name, each tensor once.
    """
    shared: dict[str, torch.nn.Parameter] = {}
    for stage in stages:
        for name, parameter in stage.owned_parameters().items():
            first = shared.setdefault(name, parameter)
            if first is not parameter:
                _replace(stage.model, parameter, first)
    return shared


def _replace(
    model: torch.nn.Module, old: torch.nn.Parameter, new: torch.nn.Parameter
) -> None:
    """Under all the names that it has."""
    for module in model.modules():
        for name, held in list(module._parameters.items()):
            if held is old:
                module._parameters[name] = new
