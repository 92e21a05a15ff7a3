"""How long a layer takes on a device.

A round runs the layer as a stage does: F and B; F, I and W, by the very
functions that the schedule runtime calls; F and B with recompute. A small layer is a
row of copies, as in a stage: with cold caches, see `cold`. The device is drained
before and after a round, not inside, as calls in a stage follow one another. Medians
are reported, because a machine with other work makes some calls slow and none fast.

Known limitations: the layer is alone in its process, without transfers. In models whose
graph cannot end between layers, see `split_backward`, W grows with the square of a
stage's layers: what is found for a row is too much for much shorter stages.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from planner.chain.split_backward import splittable, weight_backward
from planner.measure.cold import stopwatch_for
from planner.measure.layer_run import LayerRun
from planner.measure.sampling import Round, sample, spread
from planner.measure.split_layer import layer_input_backward, split_if_possible
from planner.measure.stopwatch import Stopwatch
from planner.stage_optimizer import StageOptimizer, clip, squared_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Times of one layer for one microbatch.

    Attributes:
        forward_s: F [s].
        backward_s: B [s].
        input_grad_s: I, the part of B for the input [s].
        weight_grad_s: W, the part of B for the weights [s].
        recompute_s: What recompute adds to B; 0 if it was not tried [s].
        forward_spread: Interquartile range of F's samples over their median.
        backward_spread: The same of B's samples.
    """

    forward_s: float
    backward_s: float
    input_grad_s: float
    weight_grad_s: float
    recompute_s: float = 0.0
    forward_spread: float = 0.0
    backward_spread: float = 0.0

    def without_forward_overhead(self, overhead_s: float) -> "LayerTimes":
        """The times less what the model does around every stage's layers.

        Args:
            overhead_s: Of one F [s].

        Returns:
            The layer's own times.
        """
        return replace(self, forward_s=max(0.0, self.forward_s - overhead_s))


def time_layer(
    run: LayerRun,
    device: torch.device,
    *,
    again: LayerRun | None = None,
    num_copies: int = 1,
) -> LayerTimes:
    """Time a layer's F, B, I and W.

    Args:
        run: The layer; gradients of its parameters are dropped at the end.
        device: Where it runs.
        again: The layer with recompute, to time what that adds.
        num_copies: Of the layer that `run` and `again` hold, see `chained`.

    Returns:
        Its times: medians. Without an input that takes a gradient, W is all of B;
        I and W are 0 where PyTorch cannot part them.
    """
    watch = stopwatch_for(run, device)
    found = sample(partial(play_layer, run, again, watch), judged="FB")
    run.drop_gradients()
    backward_s = statistics.median(found["B"])
    unsplit_s = backward_s if run.leaf is None else 0.0
    is_split = "W" in found
    input_grad_s = statistics.median(found["I"]) if is_split else 0.0
    weight_grad_s = statistics.median(found["W"]) if is_split else unsplit_s
    recompute_s = _median_difference(found["R"], found["B"]) if again else 0.0
    return LayerTimes(
        forward_s=statistics.median(found["F"]) / num_copies,
        backward_s=backward_s / num_copies,
        input_grad_s=input_grad_s / num_copies,
        weight_grad_s=weight_grad_s / num_copies,
        recompute_s=recompute_s / num_copies,
        forward_spread=spread(found["F"]),
        backward_spread=spread(found["B"]),
    )


def play_layer(run: LayerRun, again: LayerRun | None, watch: Stopwatch) -> Round:
    """Run a layer once in every way that is timed.

    Args:
        run: The layer; gradients of its parameters add up.
        again: The layer with recompute, if it may be recomputed.
        watch: Takes the times.

    Returns:
        F and B, F, I and W, and F and B with recompute (R); without I and W where
        nothing takes a gradient before the layer, or PyTorch cannot part them [s].
    """
    watch.begin_step()
    _backward(run, watch, forward="F", backward="B")
    if run.leaf is not None:
        split_if_possible(partial(_split_backward, run, watch))
    if again is not None:
        _backward(again, watch, forward="F again", backward="R")
    return _seconds(watch)


def _backward(run: LayerRun, watch: Stopwatch, *, forward: str, backward: str) -> None:
    run.drop_input_gradients()  # every microbatch has its own
    output = watch.run(forward, partial(run.forward, run.make_input()))
    grad = _grad_like(output)
    watch.run(backward, partial(torch.autograd.backward, output, grad))


def _split_backward(run: LayerRun, watch: Stopwatch) -> None:
    run.drop_input_gradients()  # every microbatch has its own
    with run.graph_parts.made() as parts:
        output = watch.run("F", partial(run.forward, run.make_input()))
    output = splittable(output)
    grad = _grad_like(output)
    groups = watch.run("I", partial(layer_input_backward, run, output, grad, parts))
    watch.run("W", partial(weight_backward, run.parameters, groups))


def _grad_like(output: torch.Tensor) -> torch.Tensor:
    """A gradient that is not the same everywhere; that of a loss is 1."""
    return torch.randn_like(output) if output.ndim else torch.ones_like(output)


def time_around(whole: LayerRun, run: LayerRun, device: torch.device) -> float:
    """Time what a model does in F around its layers.

    Args:
        whole: A stage.
        run: The only layer of it.
        device: Where they run.

    Returns:
        F of the stage less F of the layer, at least 0 [s].
    """
    watch = Stopwatch(device)

    def play() -> Round:
        watch.begin_step()
        watch.run("whole", partial(whole.forward, whole.make_input()))
        watch.run("layer", partial(run.forward, run.make_input()))
        return _seconds(watch)

    found = sample(play, judged=["whole", "layer"])
    return _median_difference(found["whole"], found["layer"])


def time_optimizer(
    name: str, parameters: Sequence[torch.nn.Parameter], device: torch.device
) -> float:
    """Time the end of a step: the norm, clipping, and the optimizer.

    Args:
        name: One of `OPTIMIZERS`.
        parameters: Like those to be stepped; copies are.
        device: Where they are.

    Returns:
        Time of one parameter [s].
    """
    play = step_rounds(name, parameters, device)
    found = sample(play, judged=["step"])
    return statistics.median(found["step"]) / sum(p.numel() for p in parameters)


def step_rounds(
    name: str, parameters: Sequence[torch.nn.Parameter], device: torch.device
) -> Callable[[], Round]:
    """The end of a step, again and again.

    Args:
        name: One of `OPTIMIZERS`.
        parameters: Like those to be stepped; copies are.
        device: Where they are.

    Returns:
        Takes one step with new gradients, and tells how long it took.
    """
    copies = [torch.nn.Parameter(p.detach().clone()) for p in parameters]
    optimizer = StageOptimizer(name, copies, weight_decay=0.1)
    watch = Stopwatch(device)

    def step() -> None:
        norm = squared_norm(copies) ** 0.5
        clip(copies, norm, norm / 2)
        optimizer.step(1e-3)

    def play() -> Round:
        for copy in copies:
            copy.grad = torch.randn_like(copy)
        watch.begin_step()
        watch.run("step", step)
        return _seconds(watch)

    return play


def _seconds(watch: Stopwatch) -> Round:
    found: dict[str, list[float]] = {}
    for span in watch.spans():
        found.setdefault(span.action, []).append(span.end_s - span.start_s)
    return found


def _median_difference(longer: Sequence[float], shorter: Sequence[float]) -> float:
    """Of samples taken in the same rounds, at least 0."""
    pairs = zip(longer, shorter, strict=True)
    return max(0.0, statistics.median(a - b for a, b in pairs))
