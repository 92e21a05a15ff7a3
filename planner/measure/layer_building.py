"""One layer of a model, built with its weights and inputs, as it is measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from planner.chain.crossing import Crossing
from planner.chain.inputs import make_rows
from planner.chain.layers import Chain
from planner.chain.source import DTYPES, ModelSource
from planner.chain.stages import StageRecipe, build_stage
from planner.measure.layer_run import LayerRun, block_run, chained, stage_run


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BuiltLayer:
    """A layer, ready to be run.

    Attributes:
        whole: The smallest stage that ends with it.
        run: The layer alone; the embedding and the head are stages.
        again: The same with recompute; None where it is not recomputed.
    """

    whole: LayerRun
    run: LayerRun
    again: LayerRun | None

    @property
    def weights_bytes(self) -> int:
        """Of the weights and their gradients [bytes]."""
        return sum(p.nbytes * (1 + p.requires_grad) for p in self.run.parameters)

    def learned(self) -> list[torch.nn.Parameter]:
        """The parameters that are trained.

        Returns:
            Each tensor once.
        """
        return [p for p in self.run.parameters if p.requires_grad]


def chained_copies(copies: Sequence[BuiltLayer]) -> tuple[LayerRun, LayerRun | None]:
    """What is timed of a layer.

    Args:
        copies: Of the layer.

    Returns:
        One after the other as they are, and with recompute if they may be recomputed.
    """
    again = [x.again for x in copies if x.again is not None]
    return chained([x.run for x in copies]), chained(again) if again else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBuilder:
    """Builds the layers of a model at one microbatch size.

    Attributes:
        source: The model.
        chain: Its layers, found at this size.
        dtype: Of weights and activations.
        shape: Sequences of a microbatch, tokens of a sequence.
        device: Where the layers run.
    """

    source: ModelSource
    chain: Chain
    dtype: Literal["float32", "bfloat16"]
    shape: tuple[int, int]
    device: torch.device

    def crossing(self, last_layer: int) -> tuple[Crossing, ...]:
        """What crosses the cut after a layer.

        Args:
            last_layer: Index of the layer.

        Returns:
            The hidden state and what goes with it.
        """
        return self.chain.crossing(last_layer, dtype=DTYPES[self.dtype])

    def build(self, index: int) -> BuiltLayer:
        """Build one layer, and before it what it cannot be run without.

        Args:
            index: Of the layer.

        Returns:
            The layer with weights and inputs drawn at random.
        """
        layer = self.chain.layers[index]
        first = self.chain.entry_before(index)
        recipe = StageRecipe(
            first=first, last=index, dtype=self.dtype, attention=self.chain.attention
        )
        stage = build_stage(self.source, self.chain, recipe, device=self.device, seed=0)
        rows = make_rows(
            self.source, self.shape, dtype=DTYPES[self.dtype], device=self.device
        )
        received = [_random(x, self.device) for x in self.crossing(first - 1)]
        whole = stage_run(stage, received, rows)
        if layer not in self.chain.inner:
            return BuiltLayer(whole=whole, run=whole, again=None)
        return BuiltLayer(
            whole=whole,
            run=block_run(stage, whole),
            again=block_run(stage, whole, recompute=True),
        )


def _random(like: Crossing, device: torch.device) -> torch.Tensor:
    """A tensor as it crosses a cut.

    Numbers other than fractions may be positions or rows of something: 0 or 1 are in
    all of them. A mask hides nothing.
    """
    if like.dtype.is_floating_point:
        return torch.randn(like.shape).to(device, like.dtype)
    if like.dtype == torch.bool:
        return torch.ones(like.shape, dtype=like.dtype, device=device)
    return torch.randint(0, 2, like.shape).to(device, like.dtype)
