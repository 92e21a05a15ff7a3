"""Every distinct layer of a model, built, run and dropped one at a time.

Layers with the same fingerprint (class, shapes, settings) cost the same and are
visited once.
"""

from dataclasses import replace
from typing import Literal

import torch

from planner.chain.crossing import Crossing
from planner.chain.inputs import make_rows
from planner.chain.layers import Chain, Layer
from planner.chain.source import DTYPES, ModelSource
from planner.chain.stages import StageRecipe, build_stage
from planner.measure.bench import Bench
from planner.measure.fake_tensors import NEED_VALUES, real_tensors
from planner.measure.flops import count_forward_flops
from planner.measure.layer_memory import LayerMemory
from planner.measure.layer_run import LayerRun, block_run, stage_run
from planner.measure.out_of_memory import OutOfMemoryError, is_out_of_memory
from planner.measure.progress import Steps
from planner.measure.roofline import optimizer_seconds
from planner.measure.timed import LayerTimes, time_around, time_optimizer
from planner.model_profile import LayerProfile
from planner.optimizers import OPTIMIZERS


class Visit:
    """All layers of a model at one microbatch size.

    Args:
        source: The model.
        chain: Its layers, found at this size.
        bench: Where they are run.
        dtype: Of weights and activations.
        shape: Sequences of a microbatch, tokens of a sequence.
        steps: Is told what is being done.
        optimizer_s: Time of an optimizer step per parameter, by optimizer, if it
            is known already [s].
    """

    def __init__(
        self,
        source: ModelSource,
        chain: Chain,
        bench: Bench,
        dtype: Literal["float32", "bfloat16"],
        shape: tuple[int, int],
        steps: Steps,
        optimizer_s: dict[str, float],
    ):
        self._source, self._chain, self._bench = source, chain, bench
        self._dtype, self._shape, self._steps = dtype, shape, steps
        self._known: dict[str, LayerProfile] = {}
        self.optimizer_s = optimizer_s
        self.overhead_s = 0.0

    def layers(self) -> tuple[LayerProfile, ...]:
        """Profile every distinct layer once.

        Returns:
            One entry a layer, first to last.

        Raises:
            OutOfMemoryError: A layer does not fit.
        """
        found = []
        # Blocks first: they tell what a stage costs besides its layers.
        order = [*self._chain.inner, self._chain.layers[0], self._chain.layers[-1]]
        for layer in order:
            if layer.fingerprint not in self._known:
                alike = [x for x in order if x.fingerprint == layer.fingerprint]
                self._steps.begin(
                    f"{layer.name} ({len(alike)} x {layer.kind}), "
                    f"{self._shape[0]} x {self._shape[1]} tokens"
                )
                self._known[layer.fingerprint] = self._profile_or_say(layer)
        for index, layer in enumerate(self._chain.layers):
            cost = self._known[layer.fingerprint]
            crossing = self._crossing(index)
            found.append(
                replace(
                    cost,
                    name=layer.name,
                    num_parameters=layer.num_parameters,
                    num_tied_parameters=layer.num_tied_parameters,
                    output_bytes=sum(x.num_bytes for x in crossing)
                    or cost.output_bytes,
                )
            )
        return tuple(found)

    def _crossing(self, last_layer: int) -> tuple[Crossing, ...]:
        return self._chain.crossing(last_layer, dtype=DTYPES[self._dtype])

    def _profile_or_say(self, layer: Layer) -> LayerProfile:
        """Profile a layer and drop it; say so if there is not enough memory."""
        cost = None
        try:
            cost = self._profile_somehow(layer)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # The error is gone, and with it all that held the layer.
        self._bench.clear()
        if cost is None:
            size, seq_len = self._shape
            msg = f"{layer.name} ({layer.kind}) at {size} x {seq_len} tokens"
            raise OutOfMemoryError(msg)
        return cost

    def _profile_somehow(self, layer: Layer) -> LayerProfile:
        """Profile a layer, with real tensors if fake ones do not do."""
        try:
            return self._profile(layer)
        except NEED_VALUES:
            self._steps.progress.say(
                f"{layer.name} looks at values: running it on this CPU"
            )
            with real_tensors():
                return self._profile(layer)

    def _profile(self, layer: Layer) -> LayerProfile:
        index = self._chain.layers.index(layer)
        num_calls = self._chain.calls.count(index)
        is_block = layer in self._chain.inner
        if is_block and not num_calls:
            return LayerProfile(name=layer.name, kind=layer.kind)
        first = self._chain.entry_before(index)
        recipe = StageRecipe(
            first=first,
            last=index,
            dtype=self._dtype,
            attention=self._chain.attention,
        )
        device = self._bench.device
        stage = build_stage(self._source, self._chain, recipe, device=device, seed=0)
        rows = make_rows(
            self._source, self._shape, dtype=DTYPES[self._dtype], device=device
        )
        received = [_random(x, device) for x in self._crossing(first - 1)]
        whole = stage_run(stage, received, rows)
        run = block_run(stage, whole) if is_block else whole
        again = block_run(stage, whole, recompute=True) if is_block else None
        times = self._bench.times(run, DTYPES[self._dtype], again)
        if not self.optimizer_s and run.parameters:
            self.optimizer_s = self._time_optimizers(run)
        if is_block and self._bench.is_measuring and not self.overhead_s:
            # What the model does around every stage's layers.
            self.overhead_s = time_around(whole, run, device)
        if not is_block:
            times = times.without_forward_overhead(self.overhead_s)
        memory = self._bench.memory(run)
        kept = memory.activation_bytes
        again_kept = kept if again is None else self._bench.kept_bytes(again)
        flops = count_forward_flops(run)
        largest = max((p.numel() for p in run.parameters), default=0)
        cost = _layer_profile(layer, times, memory, flops)
        cost = replace(
            cost, recompute_activation_bytes=again_kept, largest_parameter=largest
        )
        return _times_calls(cost, num_calls) if is_block else cost

    def _time_optimizers(self, run: LayerRun) -> dict[str, float]:
        bench = self._bench
        if bench.card is not None:
            return optimizer_seconds(bench.card, DTYPES[self._dtype])
        learned = [p for p in run.parameters if p.requires_grad]
        return {
            name: time_optimizer(name, learned, bench.device) for name in OPTIMIZERS
        }


def _times_calls(cost: LayerProfile, num_calls: int) -> LayerProfile:
    """A block that a model calls several times costs as many times as much."""
    return replace(
        cost,
        forward_flops=cost.forward_flops * num_calls,
        forward_s=cost.forward_s * num_calls,
        backward_s=cost.backward_s * num_calls,
        input_grad_s=cost.input_grad_s * num_calls,
        weight_grad_s=cost.weight_grad_s * num_calls,
        recompute_s=cost.recompute_s * num_calls,
        activation_bytes=cost.activation_bytes * num_calls,
        recompute_activation_bytes=cost.recompute_activation_bytes * num_calls,
        input_grad_activation_bytes=cost.input_grad_activation_bytes * num_calls,
        weight_activation_bytes=cost.weight_activation_bytes * num_calls,
        weight_grad_activation_bytes=cost.weight_grad_activation_bytes * num_calls,
    )


def _random(like: Crossing, device: torch.device) -> torch.Tensor:
    """A tensor as it crosses a cut.

    Numbers other than fractions may be positions or rows of something: 0 or 1 are in
    all of them. A mask hides nothing.
    """
    if like.dtype.is_floating_point:
        return torch.randn(like.shape).to(device, like.dtype)
    if like.dtype == torch.bool:
        return torch.ones(like.shape, dtype=like.dtype, device=device)
    return torch.randint(0, 2, like.shape).to(device, like.dtype)


def _layer_profile(
    layer: Layer,
    times: LayerTimes,
    memory: LayerMemory,
    flops: int,
) -> LayerProfile:
    return LayerProfile(
        name=layer.name,
        kind=layer.kind,
        num_parameters=layer.num_parameters,
        num_tied_parameters=layer.num_tied_parameters,
        forward_flops=flops,
        forward_s=times.forward_s,
        backward_s=times.backward_s,
        input_grad_s=times.input_grad_s if memory.can_split else 0.0,
        weight_grad_s=times.weight_grad_s if memory.can_split else 0.0,
        recompute_s=times.recompute_s,
        forward_spread=times.forward_spread,
        backward_spread=times.backward_spread,
        activation_bytes=memory.activation_bytes,
        output_bytes=memory.output_bytes,
        forward_peak_bytes=memory.forward_peak_bytes,
        backward_peak_bytes=memory.backward_peak_bytes,
        input_grad_activation_bytes=memory.input_grad_activation_bytes,
        weight_activation_bytes=memory.weight_activation_bytes,
        weight_grad_activation_bytes=memory.weight_grad_activation_bytes,
        first_backward_peak_bytes=memory.first_backward_peak_bytes,
        input_grad_peak_bytes=memory.input_grad_peak_bytes,
        weight_grad_peak_bytes=memory.weight_grad_peak_bytes,
    )
