"""I of a layer by itself, by the function that a stage calls."""

from collections.abc import Callable
from typing import TypeVar

import torch

from planner.chain.split_backward import Boundary, Groups, input_backward
from planner.measure.layer_run import LayerRun
from planner.measure.out_of_memory import is_out_of_memory

_Found = TypeVar("_Found")


def layer_input_backward(
    run: LayerRun,
    output: torch.Tensor,
    grad: torch.Tensor,
    boundaries: list[Boundary],
) -> Groups:
    """Run I; the gradients of the inputs are left in them.

    Args:
        run: The layer; it has an input that takes a gradient.
        output: From `splittable`.
        grad: Its gradient, of the same shape.
        boundaries: Between the parts of its graph, see `GraphParts`.

    Returns:
        What `weight_backward` needs.
    """
    inputs = [x for x in (run.leaf, *run.extras) if x is not None]
    _, groups = input_backward([output], [grad], inputs, run.parameters, boundaries)
    return groups


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
