"""What crosses a cut: the hidden state, other arguments, and what is collected."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from planner.chain.nested import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A tensor that crosses a cut.

    Attributes:
        shape: Of one microbatch.
        dtype: Of its elements.
        requires_grad: Whether a gradient comes back.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    @property
    def num_bytes(self) -> int:
        """Its size [bytes]."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """A tensor besides the hidden state that crosses cuts.

    Attributes:
        made: Calls of blocks after which it is known.
        targets: Number of the call and path of the argument, wherever it is used.
        tensor: What it is like in the model that was watched.
    """

    made: int
    targets: tuple[tuple[int, Path], ...]
    tensor: Crossing

    def crosses(self, num_calls: int) -> bool:
        """Whether a cut needs it.

        Args:
            num_calls: Calls of blocks before the cut.

        Returns:
            True if it is known before and used after.
        """
        return self.made <= num_calls <= self.targets[-1][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The call of a module inside a block of another stage, as the model sees it.

    Attributes:
        module: Path of the module.
        template: Its output without the tensors.
        outputs: Where in the output there is a tensor that travels, and the
            number of that in `Handover.collected`.
    """

    module: str
    template: Any
    outputs: tuple[tuple[Path, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """A tensor that the model collects from a module inside a block.

    Attributes:
        call: Number of the call of the block.
        source: Path of the module, how many of its calls within the block's come
            before, and where in the output the tensor is.
        last_call: The last call that needs it; the number of calls is the head's.
        tensor: What it is like in the model that was watched.
    """

    call: int
    source: tuple[str, int, Path]
    last_call: int
    tensor: Crossing

    def crosses(self, num_calls: int) -> bool:
        """Whether a cut needs it.

        Args:
            num_calls: Calls of blocks before the cut.

        Returns:
            True if it is known before and used after.
        """
        return self.call < num_calls <= self.last_call


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """How the hidden state goes from block to block.

    Attributes:
        input_path: Position or keyword of a block's argument that holds it.
        output_index: Index in a block's output tuple, or None for a bare tensor.
        output_length: Length of that tuple, 0 for a bare tensor.
        hidden: What the hidden state is like at every call of a block and at the
            end, in the model that was watched; mostly (batch, seq_len, hidden).
        extras: Other arguments that cross a cut.
        collected: What the model collects from its blocks on the way.
        replays: By call of a block, the calls of modules in it that collected
            tensors come from.
        in_place: Whether the model goes on using the tensors that it hands to a
            block, as for a residual that it adds itself: what a stage receives is
            then written into them.
    """

    input_path: Path
    output_index: int | None
    output_length: int
    hidden: tuple[Crossing, ...]
    extras: tuple[Extra, ...] = ()
    collected: tuple[Collected, ...] = ()
    replays: Mapping[int, tuple[Replay, ...]] = field(default_factory=dict)
    in_place: bool = False


def widened(handover: Handover, sizes: Mapping[int, int]) -> Handover:
    """What a narrow model hands over, for a wide one.

    Args:
        handover: Of the narrow model.
        sizes: Dimension of the narrow model to that of the wide one: rows, tokens,
            rows times tokens, and the width of a hidden state.

    Returns:
        The same with other shapes. The last of two dimensions stays as it is: it is
        a number of experts.
    """

    def wide(tensor: Crossing) -> Crossing:
        kept = tensor.shape[1:] if len(tensor.shape) == 2 else ()
        changed = tensor.shape[: len(tensor.shape) - len(kept)]
        shape = (*(sizes.get(size, size) for size in changed), *kept)
        return replace(tensor, shape=shape)

    return replace(
        handover,
        hidden=tuple(map(wide, handover.hidden)),
        extras=tuple(replace(x, tensor=wide(x.tensor)) for x in handover.extras),
        collected=tuple(replace(x, tensor=wide(x.tensor)) for x in handover.collected),
    )


def like(tensor: torch.Tensor) -> Crossing:
    """What a tensor is like.

    Args:
        tensor: Any, also a fake one.

    Returns:
        Its shape and kind.
    """
    return Crossing(
        shape=tuple(tensor.shape),
        dtype=tensor.dtype,
        requires_grad=tensor.requires_grad,
    )
