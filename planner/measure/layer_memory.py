"""What a layer keeps and what it needs for a moment.

The four figures are those that `model_profile` defines. The layer runs once
forward and once backward while a meter counts: storage by storage, or on CUDA the
allocator.
"""

from dataclasses import dataclass

import torch

from planner.measure.layer_run import LayerRun
from planner.measure.live_bytes import LiveBytes
from planner.measure.meter import Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemory:
    """Memory of one layer for one microbatch.

    Attributes:
        activation_bytes: What autograd keeps from F to B [bytes].
        output_bytes: Of the output [bytes].
        forward_peak_bytes: Highest level during F [bytes].
        backward_peak_bytes: Highest level during B [bytes].
    """

    activation_bytes: int
    output_bytes: int
    forward_peak_bytes: int
    backward_peak_bytes: int


def measure_memory(
    run: LayerRun, *, granularity: int = 1, meter: Meter | None = None
) -> LayerMemory:
    """Follow one forward and one backward of a layer.

    Args:
        run: The layer; gradients of its parameters are dropped at the end.
        granularity: Of the allocator [bytes].
        meter: Counts the bytes; None follows every storage.

    Returns:
        Its memory.
    """
    run.drop_gradients()
    for parameter in run.parameters:
        # From the second microbatch on, gradients are added to what is there.
        parameter.grad = torch.zeros_like(parameter)
    meter = meter or LiveBytes(run.live_tensors(), granularity=granularity)
    with meter as live:
        before = live.current_bytes
        live.reset_peak()
        hidden = run.make_input()
        output = run.forward(hidden)
        forward_peak = live.peak_bytes - before
        output_bytes = output.numel() * output.element_size()
        shape, dtype, device = output.shape, output.dtype, output.device
        # Only the graph remains: what is alive now, autograd keeps.
        edge = torch.autograd.graph.get_gradient_edge(output)
        del hidden, output
        kept = live.current_bytes - before
        live.reset_peak()
        grad = torch.ones(shape, dtype=dtype, device=device)
        torch.autograd.backward((edge,), (grad,))
        backward_peak = live.peak_bytes - before - kept
    run.drop_gradients()
    return LayerMemory(
        activation_bytes=kept,
        output_bytes=output_bytes,
        forward_peak_bytes=forward_peak,
        backward_peak_bytes=backward_peak,
    )
