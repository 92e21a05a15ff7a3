"""The two halves of a layer's backward, by the functions that a stage calls."""

from typing import Any

import torch
from torch.distributed.pipelining._backward import (
    stage_backward_input,
    stage_backward_weight,
)

from planner.measure.layer_run import LayerRun

# What I leaves to W: groups of parameters, and the gradients where they meet the
# way from output to input.
Groups = list[dict[str, Any]]


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
