"""What one stage measures about itself while it trains."""

import contextlib
import resource
import statistics
import sys
from collections.abc import Iterable, Iterator

import torch

from planner.measure.live_bytes import LiveBytes, all_tensors
from planner.measure.stopwatch import Stopwatch
from planner.run_record import MeasuredSpan, MeasuredStage


class StageMeasurements:
    """Collects times and memory of one stage over the steps of a run.

    Args:
        device: Where the stage computes.
    """

    def __init__(self, device: torch.device):
        self._device = device
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

    def summary(self) -> MeasuredStage:
        """What was measured.

        Returns:
            The last step's actions and the medians; spans on the machine's clock.
        """
        durations: dict[str, list[float]] = {"F": [], "B": []}
        for span in self._spans:
            kind = span.action.lstrip("0123456789")[0]
            durations.setdefault(kind, []).append(span.end_s - span.start_s)
        return MeasuredStage(
            peak_bytes=self._peak_bytes,
            reserved_bytes=self._reserved_bytes,
            host_peak_bytes=_host_peak_bytes(),
            busy_s=sum(sum(found) for found in durations.values()),
            forward_s=statistics.median(durations["F"] or [0.0]),
            backward_s=statistics.median(durations["B"] or [0.0]),
            optimizer_s=statistics.median(self._optimizer_s[1:] or [0.0]),
            spans=self._spans,
        )


def _host_peak_bytes() -> int:
    """Peak resident memory of this process [bytes]."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
