"""Every distinct layer of a model, built, run and dropped one at a time.

Layers with the same fingerprint (class, shapes, settings) cost the same and are
visited once.
"""

from collections.abc import Sequence
from dataclasses import replace

from planner.chain.layers import Layer
from planner.chain.source import DTYPES
from planner.measure.bench import Bench
from planner.measure.cold import num_copies
from planner.measure.fake_tensors import NEED_VALUES, real_tensors
from planner.measure.flops import count_forward_flops
from planner.measure.layer_building import BuiltLayer, LayerBuilder, chained_copies
from planner.measure.layer_memory import LayerMemory
from planner.measure.load import Load
from planner.measure.load_process import LayerWork
from planner.measure.out_of_memory import OutOfMemoryError, is_out_of_memory
from planner.measure.progress import Steps
from planner.measure.roofline import optimizer_seconds
from planner.measure.timed import LayerTimes, time_around, time_optimizer
from planner.model_profile import LayerProfile
from planner.optimizers import optimizers_for


class Visit:
    """All layers of a model at one microbatch size.

    Args:
        builder: Builds them.
        bench: Where they are run.
        load: What other processes do while a layer is timed.
        steps: Is told what is being done.
        optimizer_s: Time of an optimizer step per parameter, by optimizer, if it
            is known already [s].
    """

    def __init__(
        self,
        builder: LayerBuilder,
        bench: Bench,
        load: Load,
        steps: Steps,
        optimizer_s: dict[str, float],
    ):
        self._chain, self._bench, self._load = builder.chain, bench, load
        self._builder, self._steps = builder, steps
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
                    f"{self._builder.shape[0]} x {self._builder.shape[1]} tokens"
                )
                self._known[layer.fingerprint] = self._profile_or_say(layer)
        for index, layer in enumerate(self._chain.layers):
            cost = self._known[layer.fingerprint]
            crossing = self._builder.crossing(index)
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
            size, seq_len = self._builder.shape
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
        built = self._builder.build(index)
        run, again = built.run, built.again
        memory = self._bench.memory(run)
        kept = memory.activation_bytes
        times = self._times(index, built, kept, is_block)
        again_kept = kept if again is None else self._bench.kept_bytes(again)
        flops = count_forward_flops(run)
        largest = max((p.numel() for p in run.parameters), default=0)
        cost = _layer_profile(layer, times, memory, flops)
        cost = replace(
            cost, recompute_activation_bytes=again_kept, largest_parameter=largest
        )
        return _times_calls(cost, num_calls) if is_block else cost

    def _times(
        self, index: int, built: BuiltLayer, kept_bytes: int, is_block: bool
    ) -> LayerTimes:
        """Times of a layer, and of an optimizer step if none was timed yet."""
        layer, layers = self._chain.layers[index], self._chain.layers
        num_alike = sum(x.fingerprint == layer.fingerprint for x in layers)
        count = 1
        if self._bench.is_measuring:
            count = num_copies(built.weights_bytes + kept_bytes, num_alike)
        copies = [built, *(self._builder.build(index) for _ in range(count - 1))]
        work = LayerWork(size=self._builder.shape[0], layer=index, num_copies=count)
        with self._load.like(work):
            times = self._time(copies, is_block)
        if not self.optimizer_s and built.run.parameters:
            self.optimizer_s = self._time_optimizers(work, copies)
        return times

    def _time(self, copies: Sequence[BuiltLayer], is_block: bool) -> LayerTimes:
        """Time copies of a layer; of the first block also what surrounds all layers."""
        bench = self._bench
        run, again = chained_copies(copies)
        times = bench.times(
            run, DTYPES[self._builder.dtype], again, num_copies=len(copies)
        )
        if is_block and bench.is_measuring and not self.overhead_s:
            first = copies[0]
            self.overhead_s = time_around(first.whole, first.run, bench.device)
        return times if is_block else times.without_forward_overhead(self.overhead_s)

    def _time_optimizers(
        self, work: LayerWork, copies: Sequence[BuiltLayer]
    ) -> dict[str, float]:
        bench = self._bench
        if bench.card is not None:
            return optimizer_seconds(bench.card, DTYPES[self._builder.dtype])
        learned = [p for copy in copies for p in copy.learned()]
        found = {}
        for name in optimizers_for(self._builder.dtype):
            with self._load.like(work._replace(optimizer=name)):
                found[name] = time_optimizer(name, learned, bench.device)
        return found


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
        kept_input_bytes=memory.kept_input_bytes,
        kept_output_grad_bytes=memory.kept_output_grad_bytes,
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
