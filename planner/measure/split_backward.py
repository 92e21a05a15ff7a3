"""The two halves of a layer's backward, by the functions that a stage calls."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.distributed.pipelining._backward import (
    stage_backward_input,
    stage_backward_weight,
)

from planner.measure.layer_run import LayerRun
from planner.measure.out_of_memory import is_out_of_memory

# What I leaves to W: groups of parameters, and the gradients where they meet the
# way from output to input.
Groups = list[dict[str, Any]]

_Found = TypeVar("_Found")


def splittable(output: torch.Tensor) -> torch.Tensor:
    """The output of a layer as I can take it.

    Args:
        output: The layer's own.

    Returns:
        The same values; I detaches them in place, which no view can be.
    """
    return output.clone() if output._is_view() else output


def input_backward(run: LayerRun, output: torch.Tensor, grad: torch.Tensor) -> Groups:
    """Run I; the gradients of the inputs are left in them.

    Args:
        run: The layer; it has an input that takes a gradient.
        output: From `splittable`.
        grad: Its gradient, of the same shape.

    Returns:
        What `weight_backward` needs.
    """
    inputs = [run.leaf, *run.extras]
    _, groups = stage_backward_input([output], [grad], inputs, iter(run.parameters))
    return groups


def weight_backward(run: LayerRun, groups: Groups) -> None:
    """Run W; the gradients of the parameters are added up in them.

    Args:
        run: The layer.
        groups: From `input_backward`.
    """
    stage_backward_weight(iter(run.parameters), groups)


def split_if_possible(work: Callable[[], _Found]) -> _Found | None:
    """Do something with I and W, unless PyTorch cannot part a layer's backward.

    Args:
        work: Runs I and W of a layer.

    Returns:
        What `work` returns; None where the parts cannot be had (Gemma 3n's).
    """
    try:
        return work()
    except (RuntimeError, KeyError) as error:
        if is_out_of_memory(error):
            raise
        return None
