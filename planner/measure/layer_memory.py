"""What a layer keeps and what it needs for a moment.

The figures are those that `model_profile` defines. The layer runs three times while
a meter counts, storage by storage or on CUDA the allocator: F and B before there
are gradients, F and B with them, and F, I and W.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.multiprocessing.reductions import StorageWeakRef

from planner.chain.split_backward import (
    can_end_with,
    splittable,
    weight_backward,
)
from planner.measure.layer_run import LayerRun
from planner.measure.live_bytes import LiveBytes
from planner.measure.meter import Meter
from planner.measure.split_layer import layer_input_backward, split_if_possible


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemory:
    """Memory of one layer for one microbatch.

    Attributes:
        activation_bytes: What autograd keeps from F to B or I [bytes].
        input_grad_activation_bytes: Kept until a stage's I ends [bytes].
        weight_activation_bytes: Kept from I to W [bytes].
        weight_grad_activation_bytes: Kept until a stage's W ends [bytes].
        output_bytes: Of the output [bytes].
        kept_input_bytes: Of `activation_bytes`, the input [bytes].
        kept_output_grad_bytes: Of `weight_activation_bytes`, the output's gradient
            [bytes].
        forward_peak_bytes: Highest level during F [bytes].
        backward_peak_bytes: Highest level during B [bytes].
        first_backward_peak_bytes: The same while there are no gradients [bytes].
        input_grad_peak_bytes: Highest level during I [bytes].
        weight_grad_peak_bytes: Highest level during W [bytes].
    """

    activation_bytes: int
    input_grad_activation_bytes: int
    weight_activation_bytes: int
    weight_grad_activation_bytes: int
    output_bytes: int
    kept_input_bytes: int
    kept_output_grad_bytes: int
    forward_peak_bytes: int
    backward_peak_bytes: int
    first_backward_peak_bytes: int
    input_grad_peak_bytes: int
    weight_grad_peak_bytes: int

    @property
    def can_split(self) -> bool:
        """Whether there are I and W; else all about them is 0."""
        peaks = self.input_grad_peak_bytes, self.weight_grad_peak_bytes
        return any((*peaks, self.weight_activation_bytes))


def measure_memory(
    run: LayerRun, *, granularity: int = 1, meter: Meter | None = None
) -> LayerMemory:
    """Follow the memory of a layer through F and all kinds of backward.

    Args:
        run: The layer; gradients of its parameters are dropped at the end.
        granularity: Of the allocator [bytes].
        meter: Counts the bytes; None follows every storage.

    Returns:
        Its memory. Of a layer without an input that takes a gradient, W is all of B.
    """
    run.drop_gradients()
    with _meter(run, granularity, meter) as live:
        first = _forward_and_backward(run, live)
        for parameter in run.parameters:
            # From the second microbatch on, gradients are added to what is there.
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        whole = _forward_and_backward(run, live)
        split: _Split | None = _unsplit(whole)
        if run.leaf is not None:
            split = split_if_possible(lambda: _split_backward(run, live))
    run.drop_gradients()
    split = split or _Split(0, 0, 0, 0, 0, 0)
    return LayerMemory(
        activation_bytes=whole.kept_bytes,
        input_grad_activation_bytes=split.kept_in_input_grad_bytes,
        weight_activation_bytes=split.kept_bytes,
        weight_grad_activation_bytes=split.kept_in_weight_grad_bytes,
        output_bytes=whole.output_bytes,
        kept_input_bytes=whole.kept_input_bytes,
        kept_output_grad_bytes=split.kept_output_grad_bytes,
        forward_peak_bytes=whole.forward_peak_bytes,
        backward_peak_bytes=whole.backward_peak_bytes,
        first_backward_peak_bytes=first.backward_peak_bytes,
        input_grad_peak_bytes=split.input_grad_peak_bytes,
        weight_grad_peak_bytes=split.weight_grad_peak_bytes,
    )


def measure_kept(
    run: LayerRun, *, granularity: int = 1, meter: Meter | None = None
) -> int:
    """Follow the memory of a layer through F only.

    Args:
        run: The layer.
        granularity: Of the allocator [bytes].
        meter: Counts the bytes; None follows every storage.

    Returns:
        What autograd keeps from F to B or I [bytes].
    """
    with _meter(run, granularity, meter) as live:
        before = live.current_bytes
        output = run.forward(run.make_input())
        edge = get_gradient_edge(output)
        del output
        kept: int = live.current_bytes - before
        del edge
    return kept


def _meter(run: LayerRun, granularity: int, meter: Meter | None) -> Meter:
    return meter or LiveBytes(run.live_tensors(), granularity=granularity)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    """One F and one B."""

    kept_bytes: int
    kept_input_bytes: int
    output_bytes: int
    forward_peak_bytes: int
    backward_peak_bytes: int


class _Split(NamedTuple):
    """One I and one W."""

    input_grad_peak_bytes: int
    kept_in_input_grad_bytes: int
    kept_bytes: int
    kept_output_grad_bytes: int
    weight_grad_peak_bytes: int
    kept_in_weight_grad_bytes: int


def _unsplit(whole: _Whole) -> _Split:
    """I that does nothing."""
    return _Split(
        input_grad_peak_bytes=0,
        kept_in_input_grad_bytes=whole.kept_bytes,
        kept_bytes=whole.kept_bytes,
        kept_output_grad_bytes=0,
        weight_grad_peak_bytes=whole.backward_peak_bytes,
        kept_in_weight_grad_bytes=0,
    )


def _forward_and_backward(run: LayerRun, live: Meter) -> _Whole:
    before = live.current_bytes
    live.reset_peak()
    hidden = run.make_input()
    output = run.forward(hidden)
    forward_peak = live.peak_bytes - before
    output_bytes = output.numel() * output.element_size()
    shape, dtype, device = output.shape, output.dtype, output.device
    # Only the graph remains: what is alive now, autograd keeps.
    edge = get_gradient_edge(output)
    own_input = _Watched(hidden)
    del hidden, output
    kept = live.current_bytes - before
    kept_input = min(own_input.alive_bytes, kept)
    live.reset_peak()
    grad = torch.ones(shape, dtype=dtype, device=device)
    torch.autograd.backward((edge,), (grad,))
    backward_peak = live.peak_bytes - before - kept
    run.drop_input_gradients()
    return _Whole(
        kept_bytes=kept,
        kept_input_bytes=kept_input,
        output_bytes=output_bytes,
        forward_peak_bytes=forward_peak,
        backward_peak_bytes=backward_peak,
    )


def _split_backward(run: LayerRun, live: Meter) -> _Split:
    """F, I and W, as a layer of a stage that others follow.

    Their groups of parameters hold its graph until they are done, unless it ends with
    the layer. Nothing follows a loss: what lies between it and the last parameters
    goes with I.
    """
    before = live.current_bytes
    output = run.forward(run.make_input())
    is_held = not (run.ends_graph and can_end_with(output))
    output = splittable(output)
    held: GradientEdge | None = get_gradient_edge(output) if is_held else None
    # The output is there, too, which I must be handed: not of the layer.
    start = live.current_bytes
    live.reset_peak()
    is_loss, grad = not output.ndim, torch.ones_like(output)
    groups = layer_input_backward(run, output, grad, [])
    input_peak = live.peak_bytes - start
    output_grad = _Watched(grad)
    del output, grad
    run.drop_input_gradients()
    in_input_grad = live.current_bytes - before
    if is_loss:
        held = None
    kept = live.current_bytes - before
    kept_output_grad = min(output_grad.alive_bytes, kept)
    live.reset_peak()
    weight_backward(run.parameters, groups)
    weight_peak = live.peak_bytes - before - kept
    in_weight_grad = live.current_bytes - before
    del held
    return _Split(
        input_grad_peak_bytes=input_peak,
        kept_in_input_grad_bytes=in_input_grad,
        kept_bytes=kept,
        kept_output_grad_bytes=kept_output_grad,
        weight_grad_peak_bytes=weight_peak,
        kept_in_weight_grad_bytes=in_weight_grad,
    )


class _Watched:
    """Tells whether the memory of a tensor is still alive, without keeping it so."""

    def __init__(self, tensor: torch.Tensor | None):
        self._storage = None
        if tensor is not None:
            self._storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
            self._num_bytes = tensor.untyped_storage().nbytes()

    @property
    def alive_bytes(self) -> int:
        """Its size, 0 once it is freed [bytes]."""
        if self._storage is None or self._storage.expired():  # type: ignore[no-untyped-call]
            return 0
        return self._num_bytes
