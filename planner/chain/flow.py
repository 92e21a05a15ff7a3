"""What crosses a cut, and where there is none, from what was seen of a model.

The cut with k calls of blocks before it is legal if every value that later calls
need from before is an argument of theirs. One of these is the hidden state, which
every block takes under the same name; the others travel along with it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from planner.chain.observe import (
    Argument,
    Call,
    Leak,
    Observation,
    Use,
    memory_key,
)
from planner.errors import ModelError


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
        targets: Number of the call and key of the argument, wherever it is used.
        tensor: What it is like in the model that was watched.
    """

    made: int
    targets: tuple[tuple[int, int | str], ...]
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
class Handover:
    """How the hidden state goes from block to block.

    Attributes:
        input_key: Position or keyword of a block's argument that holds it.
        output_index: Index in a block's output tuple, or None for a bare tensor.
        output_length: Length of that tuple, 0 for a bare tensor.
        tensor: What the hidden state is like in the model that was watched,
            (batch, seq_len, hidden).
        extras: What else crosses a cut.
        in_place: Whether the model goes on using the tensors that it hands to a
            block, as for a residual that it adds itself: what a stage receives is
            then written into them.
    """

    input_key: int | str
    output_index: int | None
    output_length: int
    tensor: Crossing
    extras: tuple[Extra, ...] = ()
    in_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncuttable:
    """A place where the chain is never cut.

    Attributes:
        layer: Index of the layer before it.
        why: The mechanism, half a sentence.
    """

    layer: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The order of the blocks and what goes from one to the next.

    Attributes:
        order: Indices of the blocks, as they are called first.
        calls: Index of the layer of every call; the embedding is layer 0.
        handover: How the hidden state goes.
        uncuttable: Where there is no cut.
    """

    order: tuple[int, ...]
    calls: tuple[int, ...]
    handover: Handover
    uncuttable: tuple[Uncuttable, ...]

    def layer_of(self, use: Use) -> int:
        """The layer that a parameter is used in.

        Args:
            use: Of the parameter.

        Returns:
            Index of the layer.
        """
        if use.block is not None:
            return self.order.index(use.block) + 1
        if use.segment == len(self.calls):
            return len(self.order) + 1
        return self.calls[use.segment - 1] if use.segment else 0


def find_flow(seen: Observation, num_blocks: int, model_id: str) -> Flow:
    """Work out what crosses the cuts of a model.

    Args:
        seen: Of the model.
        num_blocks: How many blocks it has.
        model_id: For messages.

    Returns:
        The flow.

    Raises:
        ModelError: The blocks do not hand one hidden state along in one way.
    """
    order = _order(seen.calls, num_blocks)
    calls = tuple(order.index(call.block) + 1 for call in seen.calls)
    hidden = [_hidden(seen.calls, number, model_id) for number in range(len(calls))]
    keys = {argument.key for argument in hidden}
    if len(keys) > 1:
        msg = f"the blocks of {model_id} take their hidden state in {len(keys)} ways"
        raise ModelError(msg)
    index, length = _output_place(seen.calls, hidden, model_id)
    return Flow(
        order=order,
        calls=calls,
        handover=Handover(
            input_key=hidden[0].key,
            output_index=index,
            output_length=length,
            tensor=_like(hidden[0].tensor),
            extras=_extras(seen.calls, hidden),
            in_place=any(_is_handed(x, x.made, seen.calls) for x in seen.leaks),
        ),
        uncuttable=tuple(_uncuttable(seen, calls, num_blocks)),
    )


def _like(tensor: torch.Tensor) -> Crossing:
    return Crossing(
        shape=tuple(tensor.shape),
        dtype=tensor.dtype,
        requires_grad=tensor.requires_grad,
    )


def _order(calls: Sequence[Call], num_blocks: int) -> tuple[int, ...]:
    """Blocks by their first call; one without a call follows its predecessor."""
    first = {call.block: n for n, call in reversed(list(enumerate(calls)))}
    keys, latest = [], -1
    for block in range(num_blocks):
        latest = first.get(block, latest)
        keys.append((latest, block not in first, block))
    return tuple(block for _, _, block in sorted(keys))


def _hidden(calls: Sequence[Call], number: int, model_id: str) -> Argument:
    """The argument of a call that holds what the call before it left."""
    found = [
        x
        for x in calls[number].arguments
        if x.segments and x.tensor.is_floating_point()
    ]
    newest = [x for x in found if max(x.segments) == number]
    if not found:
        msg = f"block {calls[number].block} of {model_id} is handed no hidden state"
        raise ModelError(msg)
    if number and not any(x.tensor.requires_grad for x in found):
        msg = f"the blocks of {model_id} run inside a backward pass of its own"
        raise ModelError(msg)
    named = [x for x in newest or found if x.key == "hidden_states"]
    return (named or newest or found)[0]


def _output_place(
    calls: Sequence[Call], hidden: Sequence[Argument], model_id: str
) -> tuple[int | None, int]:
    """Where a block's output holds the hidden state."""
    places: set[tuple[int | None, int]] = set()
    for number, call in enumerate(calls):
        after = hidden[min(number + 1, len(hidden) - 1)].tensor
        if isinstance(call.output, torch.Tensor):
            places.add((None, 0))
            continue
        outputs: Sequence[Any] = (
            call.output if isinstance(call.output, tuple | list) else ()
        )
        same = [i for i, x in enumerate(outputs) if x is after] or [
            i
            for i, x in enumerate(outputs)
            if isinstance(x, torch.Tensor) and x.shape == hidden[number].tensor.shape
        ]
        if not same:
            msg = f"block {call.block} of {model_id} returns no hidden state"
            raise ModelError(msg)
        places.add((same[0], len(outputs)))
    if len(places) > 1:
        msg = f"the blocks of {model_id} return their hidden state in several ways"
        raise ModelError(msg)
    return places.pop()


def _extras(calls: Sequence[Call], hidden: Sequence[Argument]) -> tuple[Extra, ...]:
    """All other arguments that depend on earlier layers, each tensor once."""
    found: dict[int, list[tuple[int, Argument]]] = {}
    for number, call in enumerate(calls):
        for argument in call.arguments:
            if argument.segments and argument is not hidden[number]:
                found.setdefault(id(argument.tensor), []).append((number, argument))
    return tuple(
        Extra(
            made=max(uses[0][1].segments),
            targets=tuple((number, x.key) for number, x in uses),
            tensor=_like(uses[0][1].tensor),
        )
        for uses in found.values()
    )


def _uncuttable(
    seen: Observation, calls: Sequence[int], num_blocks: int
) -> list[Uncuttable]:
    found = []
    for layer in range(num_blocks + 1):
        num_before = sum(called <= layer for called in calls)
        if any(called > layer for called in calls[:num_before]):
            why = "a block before it runs again after one behind it"
            found.append(Uncuttable(layer=layer, why=why))
        elif any(
            x.made <= num_before < x.used and not _is_handed(x, num_before, seen.calls)
            for x in seen.leaks
        ):
            why = "a later layer takes a value from before it that is no argument"
            found.append(Uncuttable(layer=layer, why=why))
    return found


def _is_handed(leak: Leak, num_before: int, calls: Sequence[Call]) -> bool:
    """Whether the value is also an argument between a cut and its use."""
    return any(
        memory_key(argument.tensor) == leak.memory and argument.segments
        for call in calls[num_before : leak.used]
        for argument in call.arguments
    )
