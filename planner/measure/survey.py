"""A model at several microbatch sizes, as far as they fit on the device."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from planner.chain.layers import Chain, find_chain
from planner.chain.source import ModelSource, quiet_transformers
from planner.measure.bench import Bench
from planner.measure.layer_building import LayerBuilder
from planner.measure.load import Load
from planner.measure.out_of_memory import visit_sizes
from planner.measure.progress import Progress, Steps
from planner.measure.sampling import WIDE
from planner.measure.visit import Visit
from planner.model_profile import LayerProfile
from planner.units import format_bytes, format_percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """A model at one microbatch size.

    Attributes:
        chain: Its layers, as found at this size.
        layers: What they cost, first to last.
        optimizer_s: Time of an optimizer step per parameter, by optimizer [s].
        overhead_s: Fixed time of one action outside its layers [s].
    """

    chain: Chain
    layers: tuple[LayerProfile, ...]
    optimizer_s: dict[str, float]
    overhead_s: float


class Survey:
    """Visits a model at one microbatch size after the other.

    Args:
        source: The model.
        bench: Where its layers are run.
        load: What other processes do while a layer is timed.
        dtype: Of weights and activations.
        attention: Attention implementation of transformers, or `auto`.
        seq_len: Tokens of a sequence.
        progress: Is told what is being done.
    """

    def __init__(
        self,
        source: ModelSource,
        bench: Bench,
        load: Load,
        *,
        dtype: Literal["float32", "bfloat16"],
        attention: str,
        seq_len: int,
        progress: Progress,
    ):
        self._source, self._bench, self._load = source, bench, load
        self._dtype = dtype
        self._attention, self._seq_len = attention, seq_len
        self._steps = Steps(progress, 0)
        self._progress = progress
        self._chains: dict[int, Chain] = {}
        self._optimizer_s: dict[str, float] = {}

    def at(self, sizes: Sequence[int]) -> dict[int, Surveyed]:
        """Profile the model at all sizes that fit.

        Args:
            sizes: Sequences of a microbatch.

        Returns:
            What was found, by size, ascending; if none of `sizes` fits, at the
            largest half of the smallest that does.

        Raises:
            ModelError: A layer does not fit at all, or the model cannot be cut.
        """
        for size in sizes:
            self._find_chain(size)
        self._steps.expect(sum(map(_num_distinct, self._chains.values())))
        found = visit_sizes(
            sizes,
            self._visit,
            device=f"{self._bench.name} ({format_bytes(self._bench.memory_bytes)})",
            say=self._progress.say,
        )
        self._steps.expect(0)
        self._steps.end()
        if warning := spread_warning({size: x.layers for size, x in found.items()}):
            self._progress.say(warning)
        return found

    def _find_chain(self, size: int) -> Chain:
        if size not in self._chains:
            shape = (size, self._seq_len)
            with quiet_transformers():
                self._chains[size] = find_chain(
                    self._source, attention=self._attention, shape=shape
                )
        return self._chains[size]

    def _visit(self, size: int) -> Surveyed:
        known = size in self._chains
        chain = self._find_chain(size)
        if not known:  # smaller than all that were asked for
            self._steps.expect(_num_distinct(chain))
        visit = Visit(
            LayerBuilder(
                source=self._source,
                chain=chain,
                dtype=self._dtype,
                shape=(size, self._seq_len),
                device=self._bench.device,
            ),
            self._bench,
            self._load,
            self._steps,
            self._optimizer_s,
        )
        with self._bench.opened(), quiet_transformers():
            layers = visit.layers()
        self._optimizer_s = visit.optimizer_s
        return Surveyed(
            chain=chain,
            layers=layers,
            optimizer_s=visit.optimizer_s,
            overhead_s=visit.overhead_s,
        )


def spread_warning(by_size: dict[int, tuple[LayerProfile, ...]]) -> str | None:
    """Say which times are not to be trusted.

    Args:
        by_size: Layers by microbatch size.

    Returns:
        One line about all times with a wide spread, or None.
    """
    times = [
        (spread, f"{action} of {layer.name} at microbatch size {size}")
        for size, layers in by_size.items()
        for layer in layers
        for action, spread in (
            ("F", layer.forward_spread),
            ("B", layer.backward_spread),
        )
    ]
    wide = [x for x in times if x[0] > WIDE]
    if not wide:
        return None
    widest, which = max(wide)
    return (
        f"{len(wide)} of {len(times)} times vary by more than {format_percent(WIDE)} "
        f"between quartiles, most of all {which} ({format_percent(widest)}): is "
        "another process on the device, or does it slow down when hot? profile "
        "again when it is idle and cool"
    )


def _num_distinct(chain: Chain) -> int:
    return len({layer.fingerprint for layer in chain.layers})
