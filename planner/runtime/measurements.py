"""What one device measures about itself while it trains."""

import contextlib
import resource
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch

from planner.measure.live_bytes import LiveBytes, all_tensors
from planner.measure.stopwatch import Stopwatch
from planner.plan import StagePlan
from planner.run_record import MeasuredDevice, MeasuredSpan, MeasuredStage
from planner.schedule.actions import parse_action

# A device's figures and those of its stages, in the same order.
DeviceFigures = tuple[MeasuredDevice, tuple[MeasuredStage, ...]]


class DeviceMeasurements:
    """Collects times and memory of one device over the steps of a run.

    Args:
        device: Where its stages compute.
        stages: Those of the plan, at least one.
    """

    def __init__(self, device: torch.device, stages: Sequence[StagePlan]):
        self._device = device
        self._stages = stages
        self._peak_bytes = 0
        self._reserved_bytes = 0
        self._optimizer_s: list[float] = []
        self._spans: tuple[MeasuredSpan, ...] = ()
        self._watching = False

    @contextlib.contextmanager
    def watch_peak(self, wanted: bool, data: Iterable[torch.Tensor]) -> Iterator[None]:
        """Measure the peak of live tensor bytes during one step.

        Args:
            wanted: False does nothing.
            data: The whole data set; it stays on the host and is not counted.

        Yields:
            Nothing.
        """
        self._watching = wanted
        if not wanted:
            yield
        elif self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            yield
            self._peak_bytes = torch.cuda.max_memory_allocated()
            self._reserved_bytes = torch.cuda.max_memory_reserved()
        else:
            with LiveBytes(all_tensors(ignore=data)) as live:
                yield
            self._peak_bytes = live.peak_bytes
        self._watching = False

    def note_step(self, optimizer_s: float, stopwatch: Stopwatch) -> None:
        """Note a step's times, unless watching its memory slowed it down.

        Args:
            optimizer_s: Clipping and optimizer [s].
            stopwatch: Holds the step's actions.
        """
        if self._watching and self._device.type == "cpu" and self._spans:
            return
        self._optimizer_s.append(optimizer_s)
        self._spans = stopwatch.spans()

    def summary(self) -> DeviceFigures:
        """What was measured.

        Returns:
            The last step's actions and the medians; spans on the machine's clock.
        """
        stages = tuple(
            times_of_stage(
                [s for s in self._spans if parse_action(s.action).stage == stage.index]
            )
            for stage in self._stages
        )
        device = MeasuredDevice(
            device=self._stages[0].device,
            stages=tuple(stage.index for stage in self._stages),
            peak_bytes=self._peak_bytes,
            reserved_bytes=self._reserved_bytes,
            host_peak_bytes=_host_peak_bytes(),
            busy_s=sum(stage.busy_s for stage in stages),
            optimizer_s=statistics.median(self._optimizer_s[1:] or [0.0]),
        )
        return device, tuple(
            replace(
                stage,
                peak_bytes=device.peak_bytes,
                reserved_bytes=device.reserved_bytes,
                host_peak_bytes=device.host_peak_bytes,
                optimizer_s=device.optimizer_s,
            )
            for stage in stages
        )


def times_of_stage(spans: Sequence[MeasuredSpan]) -> MeasuredStage:
    """What the actions of one stage took.

    Args:
        spans: Its actions of one step.

    Returns:
        Time in all and medians by kind; no memory.
    """
    durations: dict[str, list[float]] = {kind: [] for kind in "FBIW"}
    for span in spans:
        kind = parse_action(span.action).kind
        durations[kind].append(span.end_s - span.start_s)
    median_s = {k: statistics.median(found or [0.0]) for k, found in durations.items()}
    return MeasuredStage(
        busy_s=sum(sum(found) for found in durations.values()),
        forward_s=median_s["F"],
        backward_s=median_s["B"] if durations["B"] else median_s["I"] + median_s["W"],
        input_grad_s=median_s["I"],
        weight_grad_s=median_s["W"],
        spans=tuple(spans),
    )


def _host_peak_bytes() -> int:
    """Peak resident memory of this process [bytes]."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
