"""The two halves of a stage's backward: I for its input, W for its weights.

PyTorch's functions do both. For each group of weights W walks through the graph of all
layers below, which is what a stage has to do squared, and the graph stays until the
last group is done. So where nothing but the hidden state takes a gradient from layer to
layer, the graph of a microbatch that is to be split ends: I hands the gradient over,
as between stages, and every part of the graph goes with its own I and W.

    one graph     embedding - block - block - head
    in parts      embedding - block | block | head
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.distributed.pipelining._backward import (
    stage_backward_input,
    stage_backward_weight,
)

# What I leaves to W: groups of parameters, and the gradients where they meet the
# way from output to input.
Groups = list[dict[str, Any]]


class Boundary(NamedTuple):
    """Where the graph of a stage ends and begins anew.

    Attributes:
        output: The hidden state as the layers before made it.
        received: The same values, from which the layers after start.
    """

    output: torch.Tensor
    received: torch.Tensor


class GraphParts:
    """Ends the graph of a stage between its layers, for a microbatch that asks."""

    def __init__(self) -> None:
        self._boundaries: list[Boundary] | None = None

    @contextmanager
    def made(self) -> Iterator[list[Boundary]]:
        """Make parts of the graph that is about to be built.

        Yields:
            Fills up with the boundaries, in order of the layers.
        """
        found: list[Boundary] = []
        self._boundaries = found
        try:
            yield found
        finally:
            self._boundaries = None

    def end_here(self, hidden: torch.Tensor) -> torch.Tensor:
        """End the graph between two layers, if parts are being made.

        Args:
            hidden: What goes from one to the other, shape (batch, seq_len, hidden).

        Returns:
            What the layer after is to be given.
        """
        if self._boundaries is None or not can_end_with(hidden):
            return hidden
        received = hidden.detach().requires_grad_()
        self._boundaries.append(Boundary(hidden, received))
        return received


def can_end_with(hidden: torch.Tensor) -> bool:
    """Whether a graph can end with a tensor.

    Args:
        hidden: The output of a layer.

    Returns:
        False for one that takes no gradient, and for a view: I detaches the output of
        a part in place.
    """
    return hidden.requires_grad and not hidden._is_view()


def splittable(output: torch.Tensor) -> torch.Tensor:
    """The output of a stage as I can take it.

    Args:
        output: The stage's own.

    Returns:
        The same values; I detaches them in place, which no view can be.
    """
    return output.clone() if output._is_view() else output


def input_backward(
    outputs: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor | None] | None,
    inputs: Sequence[torch.Tensor],
    weights: Sequence[torch.nn.Parameter],
    boundaries: list[Boundary],
) -> tuple[tuple[torch.Tensor | None, ...], Groups]:
    """Run I; the gradients of the inputs are left in them.

    Args:
        outputs: Of the stage, from `splittable`; or the loss.
        grads: Theirs, of the same shapes; None stands for 1.
        inputs: What the stage was given.
        weights: Of the stage.
        boundaries: Between the parts of its graph; each is taken off the list when
            I is past it.

    Returns:
        The gradients of the inputs, and what `weight_backward` needs.
    """
    own = _Weights(weights)
    groups: Groups = []
    while boundaries:
        output, received = boundaries.pop()
        groups = _part(outputs, grads, [received], own)[1] + groups
        grad, received.grad = received.grad, None
        outputs, grads = [output], [torch.zeros_like(output) if grad is None else grad]
        del output, received, grad
    input_grads, found = _part(outputs, grads, inputs, own)
    return input_grads, found + groups


def weight_backward(weights: Sequence[torch.nn.Parameter], groups: Groups) -> None:
    """Run W; the gradients of the weights are added up in them.

    Args:
        weights: Of the stage.
        groups: From `input_backward`.
    """
    stage_backward_weight(iter(weights), groups)


class _Weights:
    """The weights of a stage, in order."""

    def __init__(self, weights: Sequence[torch.nn.Parameter]):
        self._weights = weights
        self._places = {id(weight): place for place, weight in enumerate(weights)}

    def below(self, outputs: Sequence[torch.Tensor]) -> list[torch.nn.Parameter]:
        """Those that a part of the graph leads to.

        Args:
            outputs: Of the part.

        Returns:
            Each once, in order.
        """
        waiting = [x.grad_fn for x in outputs if x.grad_fn is not None]
        seen, places = set(waiting), set()
        while waiting:
            node = waiting.pop()
            leaf = getattr(node, "variable", None)
            if id(leaf) in self._places:
                places.add(self._places[id(leaf)])
            below = {x for x, _ in node.next_functions if x is not None} - seen
            seen |= below
            waiting += below
        return [self._weights[place] for place in sorted(places)]


def _part(
    outputs: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor | None] | None,
    inputs: Sequence[torch.Tensor],
    weights: _Weights,
) -> tuple[tuple[torch.Tensor | None, ...], Groups]:
    """I of one part of the graph."""
    return stage_backward_input(
        list(outputs),
        None if grads is None else list(grads),  # type: ignore[arg-type]
        list(inputs),
        iter(weights.below(outputs)),
    )
