"""Where layers are run: a device of this machine, or fake tensors for a card."""

import contextlib
import gc
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from planner.cards import card_named
from planner.catalogue import Card
from planner.errors import WishError
from planner.measure.cuda_kernels import CudaKernels
from planner.measure.fake_tensors import fake_tensors
from planner.measure.host_memory import keep_freed_memory
from planner.measure.layer_memory import LayerMemory, measure_kept, measure_memory
from planner.measure.layer_run import LayerRun
from planner.measure.meter import AllocatorMeter
from planner.measure.progress import Progress
from planner.measure.roofline import EFFICIENCY, estimate_times
from planner.measure.timed import LayerTimes, time_layer
from planner.model_profile import ProfiledDevice

DEFAULT_CARD = "rtx3090"
CUDA_GRANULARITY = 512
# Of a card whose own is unknown: the first that computes in bfloat16.
_CAPABILITY = (8, 0)


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

    @property
    def is_measuring(self) -> bool:
        """Whether layers are run on the device that the profile is for."""
        return self.card is None

    @property
    def name(self) -> str:
        """What the card is called, or `cpu`."""
        if self.card is not None:
            return self.card.name
        return torch.cuda.get_device_name() if self._is_cuda else "cpu"

    @property
    def memory_bytes(self) -> int:
        """Of the card; on the CPU, of the whole host [bytes]."""
        if self.card is not None:
            return self.card.memory_bytes
        if self._is_cuda:
            return int(torch.cuda.get_device_properties(self.device).total_memory)
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    @property
    def _is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def times(
        self,
        run: LayerRun,
        dtype: torch.dtype,
        again: LayerRun | None = None,
        num_copies: int = 1,
    ) -> LayerTimes:
        """Time a layer.

        Args:
            run: The layer; where it is measured, a row of copies.
            dtype: Of its matrix products.
            again: The same with recompute, if the layer may be recomputed.
            num_copies: In the row.

        Returns:
            Its times.
        """
        if self.card is not None:
            return estimate_times(run, self.card, dtype)
        return time_layer(run, self.device, again=again, num_copies=num_copies)

    def memory(self, run: LayerRun) -> LayerMemory:
        """Follow the memory of a layer.

        Args:
            run: The layer.

        Returns:
            Its memory; of a layer that runs on CUDA as the allocator counts it.
        """
        return measure_memory(run, granularity=self.granularity, meter=self._meter())

    def kept_bytes(self, run: LayerRun) -> int:
        """Follow the memory of a layer through F only.

        Args:
            run: The layer.

        Returns:
            What it keeps from F to B or I [bytes].
        """
        return measure_kept(run, granularity=self.granularity, meter=self._meter())

    def _meter(self) -> AllocatorMeter | None:
        return AllocatorMeter(self.device) if self._is_cuda else None

    def clear(self) -> None:
        """Give back the memory of layers that nothing refers to any more."""
        if self.is_measuring:
            gc.collect()
        if self._is_cuda:
            torch.cuda.empty_cache()

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Everything that makes layers run here.

        Yields:
            Nothing.
        """
        with contextlib.ExitStack() as stack:
            if self.card is not None:
                stack.enter_context(fake_tensors())
                stack.enter_context(CudaKernels(_capability(self.card)))
            elif self.device.type == "cpu":
                # As each process of a run.
                stack.callback(torch.set_num_threads, torch.get_num_threads())
                torch.set_num_threads(1)
                keep_freed_memory()
            yield


def open_bench(device: str, progress: Progress) -> Bench:
    """Choose where layers are run.

    Args:
        device: `cpu`, `cuda`, `auto` or a card of the catalogue.
        progress: Is told what `auto` comes to.

    Returns:
        The bench.

    Raises:
        WishError: There is no such card, here or in the catalogue.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else DEFAULT_CARD
        if device == DEFAULT_CARD:
            progress.say(
                f"no CUDA card here: computing for the catalogue's {DEFAULT_CARD}"
            )
    if device == "cpu":
        return Bench(device=torch.device("cpu"))
    if device.startswith("cuda:"):
        number = device.removeprefix("cuda:")
        msg = (
            f"--device {device} is not how a card is chosen: measure on it with "
            f"CUDA_VISIBLE_DEVICES={number} and --device cuda"
        )
        raise WishError(msg)
    if device == "cuda":
        if not torch.cuda.is_available():
            msg = (
                "there is no CUDA card that torch can use; measure on the CPU with "
                f"--device cpu, or compute for a card with --device {DEFAULT_CARD}"
            )
            raise WishError(msg)
        return Bench(device=torch.device("cuda"), granularity=CUDA_GRANULARITY)
    return Bench(
        device=torch.device("cpu"),
        granularity=CUDA_GRANULARITY,
        card=card_named(device),
    )


def describe_device(
    bench: Bench,
    *,
    optimizer_s: dict[str, float],
    overhead_s: float,
    num_processes: int = 1,
) -> ProfiledDevice:
    """What a profile says of the device.

    Args:
        bench: Where the layers were run.
        optimizer_s: Time of an optimizer step per parameter, by optimizer [s].
        overhead_s: Fixed time of one action outside its layers [s].
        num_processes: That computed at once.

    Returns:
        The device.
    """
    if bench.card is not None:
        return ProfiledDevice(
            name=bench.name,
            kind="analytic",
            type="cuda",
            memory_bytes=bench.memory_bytes,
            optimizer_s_per_parameter=optimizer_s,
            efficiency=EFFICIENCY,
        )
    kind: Literal["cuda", "cpu"] = "cuda" if bench.device.type == "cuda" else "cpu"
    return ProfiledDevice(
        name=bench.name,
        kind="measured",
        type=kind,
        memory_bytes=bench.memory_bytes,
        optimizer_s_per_parameter=optimizer_s,
        step_overhead_s=overhead_s,
        num_processes=num_processes,
    )


def _capability(card: Card) -> tuple[int, int]:
    if not card.compute_capability:
        return _CAPABILITY
    major, minor = card.compute_capability.split(".")
    return int(major), int(minor)
