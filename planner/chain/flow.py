"""What crosses a cut, and where there is none, from what was seen of a model.

The cut with k calls of blocks before it is legal if every value that later calls
need from before is an argument of theirs, or is collected from the output of a
module, as a router's logits are for the balance loss. One of the arguments is the
hidden state, which every block takes under the same name; all else travels along.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from planner.chain.collect import collect
from planner.chain.crossing import Extra, Handover, like
from planner.chain.observation import Argument, Call, Need, Observation, Use, memory_key
from planner.errors import ModelError


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
        branches: Calls that are not handed what the call before left.
    """

    order: tuple[int, ...]
    calls: tuple[int, ...]
    handover: Handover
    uncuttable: tuple[Uncuttable, ...]
    branches: tuple[int, ...] = ()

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


def find_flow(seen: Observation, paths: Sequence[str], model_id: str) -> Flow:
    """Work out what crosses the cuts of a model.

    Args:
        seen: Of the model.
        paths: Of its blocks.
        model_id: For messages.

    Returns:
        The flow.

    Raises:
        ModelError: The blocks do not hand one hidden state along in one way.
    """
    if seen.nested:
        msg = f"the blocks of {model_id} call one another"
        raise ModelError(msg)
    order = _order(seen.calls, len(paths))
    calls = tuple(order.index(call.block) + 1 for call in seen.calls)
    named = [f"{paths[call.block]} of {model_id}" for call in seen.calls]
    hidden = [_hidden(seen.calls, n, name) for n, name in enumerate(named)]
    taken = {argument.path for argument in hidden}
    if len(taken) > 1:
        msg = f"the blocks of {model_id} take their hidden state in {len(taken)} ways"
        raise ModelError(msg)
    index, length = _output_place(seen.calls, hidden, paths, model_id)
    last = seen.calls[-1].output
    left = last if index is None else last[index]
    # The head is handed the hidden state through the last block.
    needs = [
        x
        for x in seen.needs
        if (x.source.call, x.source.memory) != (len(calls) - 1, memory_key(left))
    ]
    collected, replays, missing = collect(needs, seen.calls)
    return Flow(
        order=order,
        calls=calls,
        handover=Handover(
            input_path=hidden[0].path,
            output_index=index,
            output_length=length,
            hidden=(*(like(x.tensor) for x in hidden), like(left)),
            extras=_extras(seen.calls, hidden),
            collected=collected,
            replays=replays,
            in_place=seen.rereads,
        ),
        uncuttable=tuple(_uncuttable(missing, calls, len(paths))),
        branches=tuple(
            n for n, x in enumerate(hidden) if n and max(x.segments, default=0) < n
        ),
    )


def _order(calls: Sequence[Call], num_blocks: int) -> tuple[int, ...]:
    """Blocks by their first call; one without a call follows its predecessor."""
    first = {call.block: n for n, call in reversed(list(enumerate(calls)))}
    keys, latest = [], -1
    for block in range(num_blocks):
        latest = first.get(block, latest)
        keys.append((latest, block not in first, block))
    return tuple(block for _, _, block in sorted(keys))


def _hidden(calls: Sequence[Call], number: int, name: str) -> Argument:
    """The argument of a call that holds what the call before it left."""
    given = calls[number].arguments
    if not number and given and not any(x.segments for x in given):
        return given[0]  # nothing comes before it
    found = [x for x in given if x.segments and x.tensor.is_floating_point()]
    newest = [x for x in found if max(x.segments) == number]
    if not found:
        msg = f"{name} is handed nothing that a layer before it left: no chain"
        raise ModelError(msg)
    if number and not any(x.tensor.requires_grad for x in found):
        msg = f"{name} runs inside a backward pass of its own"
        raise ModelError(msg)
    named = [x for x in newest or found if x.path == ("hidden_states",)]
    return (named or newest or found)[0]


def _output_place(
    calls: Sequence[Call],
    hidden: Sequence[Argument],
    paths: Sequence[str],
    model_id: str,
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
            msg = f"{paths[call.block]} of {model_id} returns no hidden state"
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
            targets=tuple((number, x.path) for number, x in uses),
            tensor=like(uses[0][1].tensor),
        )
        for uses in found.values()
    )


def _uncuttable(
    missing: Iterable[Need], calls: Sequence[int], num_blocks: int
) -> list[Uncuttable]:
    lacking = {
        number
        for need in missing
        for number in range(need.source.call + 1, need.last_call + 1)
    }
    found = []
    for layer in range(num_blocks + 1):
        num_before = sum(called <= layer for called in calls)
        if any(called > layer for called in calls[:num_before]):
            why = "a block before it runs again after one behind it"
            found.append(Uncuttable(layer=layer, why=why))
        elif num_before in lacking:
            why = "a later layer takes a value from before it that is no argument"
            found.append(Uncuttable(layer=layer, why=why))
    return found
