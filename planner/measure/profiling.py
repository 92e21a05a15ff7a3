"""Profile a model: every distinct layer once, measured or computed.

Layers with the same fingerprint (class, shapes, settings) cost the same and are
visited once, one at a time. Without the card the very same code runs on fake
tensors, which have shapes but no memory, and a roofline takes the place of the
clock.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

import torch

from planner.cards import card_named, check_dtype
from planner.catalogue import Card
from planner.chain.crossing import Crossing
from planner.chain.inputs import make_rows
from planner.chain.layers import Chain, Layer, find_chain
from planner.chain.source import (
    DTYPES,
    ModelSource,
    open_source,
    quiet_transformers,
)
from planner.chain.stages import StageRecipe, build_stage
from planner.errors import WishError
from planner.measure.fake_tensors import NEED_VALUES, fake_tensors, real_tensors
from planner.measure.flops import count_forward_flops
from planner.measure.layer_memory import LayerMemory, measure_memory
from planner.measure.layer_run import LayerRun, block_run, stage_run
from planner.measure.roofline import estimate_times, optimizer_seconds
from planner.measure.timed import LayerTimes, time_forward, time_layer, time_optimizer
from planner.model_profile import (
    LayerProfile,
    ModelInfo,
    ModelProfile,
    ProfiledDevice,
)
from planner.versions import installed_versions

DEFAULT_CARD = "rtx3090"
_CUDA_GRANULARITY = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where layers are run, and what times them.

    Attributes:
        device: Of the tensors.
        granularity: Of the allocator [bytes].
        card: The card to compute times for; None measures on `device`.
    """

    device: torch.device
    granularity: int = 1
    card: Card | None = None

    def times(self, run: LayerRun, dtype: torch.dtype) -> LayerTimes:
        """Time a layer.

        Args:
            run: The layer.
            dtype: Of its matrix products.

        Returns:
            Its times.
        """
        if self.card is not None:
            return estimate_times(run, self.card, dtype)
        return time_layer(run, self.device)

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Everything that makes layers run here.

        Yields:
            Nothing.
        """
        with contextlib.ExitStack() as stack:
            if self.card is not None:
                stack.enter_context(fake_tensors())
            elif self.device.type == "cpu":
                # As many as each process of a run has.
                stack.callback(torch.set_num_threads, torch.get_num_threads())
                torch.set_num_threads(1)
            yield


def profile_model(
    model_id: str,
    *,
    device: str,
    dtype: Literal["float32", "bfloat16"],
    seq_len: int,
    microbatch_sizes: tuple[int, ...],
    attention: str,
    revision: str | None,
    trust_remote_code: bool,
    progress: Callable[[str], None],
) -> ModelProfile:
    """Find out what every layer of a model costs.

    Args:
        model_id: Hub id or folder.
        device: `cpu` or `cuda` measure; a card of the catalogue is computed;
            `auto` is `cuda` where there is one, else the catalogue's RTX 3090.
        dtype: Of weights and activations.
        seq_len: Tokens of a sequence.
        microbatch_sizes: Sequences of a microbatch; the first is the default.
        attention: Attention implementation of transformers, or `auto`.
        revision: Commit or branch of the hub.
        trust_remote_code: Whether the model's own code may run.
        progress: Is told what is being done.

    Returns:
        The profile.

    Raises:
        ModelError: The model cannot be found or cut.
        WishError: The device is unknown or lacks the dtype, or the model cannot
            take `seq_len`.
    """
    bench = _open_bench(device, progress)
    check_dtype(bench.card, dtype)
    source = open_source(
        model_id, revision=revision, trust_remote_code=trust_remote_code
    )
    _check_length(source, seq_len)
    if source.rows is not None:
        seq_len = 1  # a row of a user's module counts as one
    progress(f"reading {model_id}")
    shapes = [(size, seq_len) for size in microbatch_sizes]
    with quiet_transformers():
        chains = [find_chain(source, attention=attention, shape=x) for x in shapes]
    chain = chains[0]
    by_size = {}
    with bench.opened(), quiet_transformers():
        for shape, found in zip(shapes, chains, strict=True):
            visit = _Visit(source, found, bench, dtype, shape, progress)
            by_size[shape[0]] = visit.layers()
    first, *others = microbatch_sizes
    return ModelProfile(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=installed_versions(),
        model=ModelInfo(
            id=model_id,
            architecture=chain.architecture,
            revision=revision,
            num_parameters=chain.num_parameters,
        ),
        device=_describe_device(bench, visit),
        dtype=dtype,
        attention=chain.attention,
        trust_remote_code=trust_remote_code,
        seq_len=seq_len,
        microbatch_size=first,
        layers=by_size[first],
        microbatches={str(size): by_size[size] for size in others},
        ties=chain.ties,
        uncuttable=tuple(
            (chain.names[x.layer], chain.names[x.layer + 1]) for x in chain.uncuttable
        ),
    )


class _Visit:
    """All layers of a model at one microbatch size."""

    def __init__(
        self,
        source: ModelSource,
        chain: Chain,
        bench: Bench,
        dtype: Literal["float32", "bfloat16"],
        shape: tuple[int, int],
        progress: Callable[[str], None],
    ):
        self._source, self._chain, self._bench = source, chain, bench
        self._dtype, self._shape, self._progress = dtype, shape, progress
        self._known: dict[str, LayerProfile] = {}
        self.optimizer_s: dict[str, float] = {}
        self.overhead_s = 0.0

    def layers(self) -> tuple[LayerProfile, ...]:
        found = []
        # Blocks first: they tell what a stage costs besides its layers.
        order = [*self._chain.inner, self._chain.layers[0], self._chain.layers[-1]]
        for layer in order:
            if layer.fingerprint not in self._known:
                alike = [x for x in order if x.fingerprint == layer.fingerprint]
                self._progress(
                    f"profiling {layer.name} ({len(alike)} x {layer.kind}), "
                    f"{self._shape[0]} x {self._shape[1]} tokens"
                )
                self._known[layer.fingerprint] = self._profile_somehow(layer)
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

    def _profile_somehow(self, layer: Layer) -> LayerProfile:
        """Profile a layer, with real tensors if fake ones do not do."""
        try:
            return self._profile(layer)
        except NEED_VALUES:
            self._progress(f"{layer.name} looks at values: running it on this CPU")
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
        times = self._bench.times(run, DTYPES[self._dtype])
        if not self.optimizer_s and run.parameters:
            self._time_optimizer(run)
            if is_block and self._bench.card is None:
                # What the model does around every stage's layers.
                stage_s = time_forward(whole, device)
                self.overhead_s = max(0.0, stage_s - time_forward(run, device))
        if not is_block:
            times = times.without_forward_overhead(self.overhead_s)
        memory = measure_memory(run, granularity=self._bench.granularity)
        recomputed = memory
        if is_block:
            again = block_run(stage, whole, recompute=True)
            recomputed = measure_memory(again, granularity=self._bench.granularity)
        flops = count_forward_flops(run)
        cost = _layer_profile(layer, times, memory, recomputed, flops)
        return _times_calls(cost, num_calls) if is_block else cost

    def _time_optimizer(self, run: LayerRun) -> None:
        bench = self._bench
        if bench.card is not None:
            dtype = DTYPES[self._dtype]
            self.optimizer_s = optimizer_seconds(bench.card, dtype)
            return
        self.optimizer_s = {
            name: time_optimizer(name, run, bench.device) for name in ("adamw", "sgd")
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
        activation_bytes=cost.activation_bytes * num_calls,
        recompute_activation_bytes=cost.recompute_activation_bytes * num_calls,
    )


def _random(like: Crossing, device: torch.device) -> torch.Tensor:
    """A tensor as it crosses a cut; numbers other than fractions are zero."""
    if like.dtype.is_floating_point:
        return torch.randn(like.shape).to(device, like.dtype)
    return torch.zeros(like.shape, dtype=like.dtype, device=device)


def _layer_profile(
    layer: Layer,
    times: LayerTimes,
    memory: LayerMemory,
    recomputed: LayerMemory,
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
        input_grad_s=times.input_grad_s,
        weight_grad_s=times.weight_grad_s,
        activation_bytes=memory.activation_bytes,
        recompute_activation_bytes=recomputed.activation_bytes,
        output_bytes=memory.output_bytes,
        forward_peak_bytes=memory.forward_peak_bytes,
        backward_peak_bytes=memory.backward_peak_bytes,
    )


def _open_bench(device: str, progress: Callable[[str], None]) -> Bench:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else DEFAULT_CARD
        if device == DEFAULT_CARD:
            progress(f"no CUDA card here: computing for the catalogue's {DEFAULT_CARD}")
    if device == "cpu":
        return Bench(device=torch.device("cpu"))
    if device == "cuda":
        if not torch.cuda.is_available():
            msg = (
                "there is no CUDA card that torch can use; measure on the CPU with "
                f"--device cpu, or compute for a card with --device {DEFAULT_CARD}"
            )
            raise WishError(msg)
        return Bench(device=torch.device("cuda"), granularity=_CUDA_GRANULARITY)
    return Bench(
        device=torch.device("cpu"),
        granularity=_CUDA_GRANULARITY,
        card=card_named(device),
    )


def _describe_device(bench: Bench, visit: _Visit) -> ProfiledDevice:
    if bench.card is not None:
        return ProfiledDevice(
            name=bench.card.name,
            kind="analytic",
            type="cuda",
            memory_bytes=bench.card.memory_bytes,
            optimizer_s_per_parameter=visit.optimizer_s,
        )
    if bench.device.type == "cuda":
        name = torch.cuda.get_device_name()
        memory_bytes = torch.cuda.get_device_properties(0).total_memory
        kind: Literal["cuda", "cpu"] = "cuda"
    else:
        name, kind = "cpu", "cpu"
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return ProfiledDevice(
        name=name,
        kind="measured",
        type=kind,
        memory_bytes=memory_bytes,
        optimizer_s_per_parameter=visit.optimizer_s,
        step_overhead_s=visit.overhead_s,
    )


def _check_length(source: ModelSource, seq_len: int) -> None:
    config = source.config.get_text_config(decoder=True)
    longest = getattr(config, "max_position_embeddings", None)
    if isinstance(longest, int) and seq_len > longest:
        msg = (
            f"{source.id} takes sequences of at most {longest} tokens, not {seq_len}; "
            f"use --seq-len {longest} or less"
        )
        raise WishError(msg)
