"""How long a layer takes on a device.

One call follows the other as in a stage; medians are reported, because a
machine with other work makes some calls slow and none fast.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from planner.measure.layer_run import LayerRun

_NUM_WARMUP_CALLS = 2
_MIN_CALLS = 5
_MAX_CALLS = 50
_BUDGET_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Times of one layer for one microbatch.

    Attributes:
        forward_s: Median F [s].
        backward_s: Median B [s].
        input_grad_s: Median I, the gradient of the input only [s].
        weight_grad_s: What is left of B [s].
    """

    forward_s: float
    backward_s: float
    input_grad_s: float
    weight_grad_s: float

    def without_forward_overhead(self, overhead_s: float) -> "LayerTimes":
        """The times less what the model does around every stage's layers.

        Args:
            overhead_s: Of one F [s].

        Returns:
            The layer's own times.
        """
        return replace(self, forward_s=max(0.0, self.forward_s - overhead_s))


def time_layer(run: LayerRun, device: torch.device) -> LayerTimes:
    """Time a layer's forward and backward.

    Args:
        run: The layer; gradients of its parameters are dropped at the end.
        device: Where it runs.

    Returns:
        Its times.
    """
    forwards: list[float] = []
    backwards: list[float] = []
    inputs: list[float] = []
    begin_s = time.perf_counter()
    for call in range(_NUM_WARMUP_CALLS + _MAX_CALLS):
        hidden = run.make_input()
        forward_s, output = _timed(partial(run.forward, hidden), device)
        grad = torch.ones_like(output)
        backward_s, _ = _timed(partial(output.backward, grad), device)
        del output
        if call < _NUM_WARMUP_CALLS:
            begin_s = time.perf_counter()
            continue
        forwards.append(forward_s)
        backwards.append(backward_s)
        enough = len(forwards) >= _MIN_CALLS
        if enough and time.perf_counter() - begin_s > _BUDGET_S:
            break
    if run.leaf is not None:
        inputs = [_time_input_grad(run, device) for _ in range(3)]
    run.drop_gradients()
    backward_s = statistics.median(backwards)
    input_s = min(backward_s, statistics.median(inputs)) if inputs else 0.0
    return LayerTimes(
        forward_s=statistics.median(forwards),
        backward_s=backward_s,
        input_grad_s=input_s,
        weight_grad_s=backward_s - input_s,
    )


def _time_input_grad(run: LayerRun, device: torch.device) -> float:
    leaf = run.leaf
    assert leaf is not None
    output = run.forward(run.make_input())
    grad = torch.ones_like(output)
    seconds, _ = _timed(lambda: torch.autograd.grad(output, leaf, grad), device)
    return seconds


def time_forward(run: LayerRun, device: torch.device) -> float:
    """Time a forward alone.

    Args:
        run: The layer.
        device: Where it runs.

    Returns:
        Median F [s].
    """
    seconds = []
    for _ in range(_NUM_WARMUP_CALLS + _MIN_CALLS):
        hidden = run.make_input()
        seconds.append(_timed(partial(run.forward, hidden), device)[0])
    return statistics.median(seconds[_NUM_WARMUP_CALLS:])


def time_optimizer(name: str, run: LayerRun, device: torch.device) -> float:
    """Time an optimizer step with fp32 weights.

    Args:
        name: `adamw` or `sgd`.
        run: The layer whose parameters are stepped.
        device: Where they are.

    Returns:
        Time of one parameter [s].
    """
    parameters = [torch.nn.Parameter(p.detach().float()) for p in run.parameters]
    kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[name]
    optimizer = kind(parameters, fused=True)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    seconds = [_timed(optimizer.step, device)[0] for _ in range(5)]
    return statistics.median(seconds[1:]) / sum(p.numel() for p in parameters)


def _timed(work: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin_s = time.perf_counter()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin_s, result
