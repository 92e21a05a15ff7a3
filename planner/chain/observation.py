"""What was seen of a model that was watched while it ran."""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from planner.chain.nested import Path


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Argument:
    """A tensor that a block is called with.

    Attributes:
        path: Position or keyword, and where in it.
        tensor: The tensor.
        segments: What its value depends on; empty if on the inputs alone.
    """

    path: Path
    tensor: torch.Tensor
    segments: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCall:
    """One call of a module inside a block, or of the block itself.

    Attributes:
        path: Of the module.
        outputs: Where its output holds tensors.
        template: The output without them.
    """

    path: str
    outputs: tuple[tuple[Path, torch.Tensor], ...]
    template: Any


@dataclass(slots=True, kw_only=True)
class Call:
    """One call of a block.

    Attributes:
        block: Index of the block.
        arguments: Its tensors, in the order of the call.
        output: What it returned.
        modules: Calls of the modules inside, and of itself, as they ended.
    """

    block: int
    arguments: tuple[Argument, ...]
    output: Any = None
    modules: list[ModuleCall] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A parameter used outside the block that holds it.

    Attributes:
        name: Of the parameter.
        segment: When.
        block: Index of the block that was running, or None.
    """

    name: str
    segment: int
    block: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A value that code outside the blocks works with.

    Attributes:
        kind: Made by a call of a block, handed to one, or a parameter that is
            used after one.
        call: Number of this call, -1 for the embedding: a stage that enters at
            this call or before has the value.
        memory: Key of its memory, see `memory_key`.
    """

    kind: Literal["made", "handed", "parameter"]
    call: int
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A source that is needed on stages that do not have it.

    Attributes:
        source: The value.
        last_call: Stages that enter after the source's call and up to this one
            lack it; the head is entered at the number of calls.
        inside: Whether a block takes the value, otherwise than as an argument.
    """

    source: Source
    last_call: int
    inside: bool = False


@dataclass(slots=True, kw_only=True)
class Observation:
    """All that was seen.

    Attributes:
        calls: Of blocks, in order.
        uses: Of parameters that do not belong to the block that ran.
        needs: See `Need`.
        finished: Paths of modules that ran before the first block only.
        rereads: Whether the model goes on using what it has handed to a block.
        adds_loss: Whether the model's loss is more than cross-entropy.
        nested: Whether a block calls another one.
    """

    calls: list[Call] = field(default_factory=list)
    uses: dict[Use, None] = field(default_factory=dict)
    needs: set[Need] = field(default_factory=set)
    finished: list[str] = field(default_factory=list)
    rereads: bool = False
    adds_loss: bool = False
    nested: bool = False


def memory_key(tensor: torch.Tensor) -> int:
    """A number that tensors share if they share memory.

    Args:
        tensor: Any, also a fake one.

    Returns:
        The number; it is unique while the tensor is alive.
    """
    return int(tensor.untyped_storage()._cdata)
