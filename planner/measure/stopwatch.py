"""When actions of a device begin and end: one stopwatch for profiles and runs."""

import time
from collections.abc import Callable
from typing import Any

import torch

from planner.run_record import MeasuredSpan


class Stopwatch:
    """Notes when actions begin and end.

    On CUDA it records events, which do not hold up the card; on a CPU it reads
    the clock that all processes of a machine share.
    """

    def __init__(self, device: torch.device):
        self._cuda = device.type == "cuda"
        self._marks: list[tuple[str, Any, Any]] = []
        self._base_s = 0.0
        self._base_event: Any = None

    def begin_step(self) -> None:
        """Forget the last step and line the card up with the clock."""
        self._marks.clear()
        if self._cuda:
            torch.cuda.synchronize()
            self._base_event = self._now()
        self._base_s = time.perf_counter()

    def run(self, name: str, work: Callable[[], Any]) -> Any:
        """Do some work and note when it began and ended.

        Args:
            name: Of the action, such as `0F0`.
            work: What to do.

        Returns:
            What `work` returns.
        """
        begin = self._now()
        result = work()
        self._marks.append((name, begin, self._now()))
        return result

    def spans(self) -> tuple[MeasuredSpan, ...]:
        """The actions of the last step, on the clock of the machine.

        Returns:
            One span an action, in order of time [s].
        """
        if self._cuda:
            torch.cuda.synchronize()
        return tuple(
            MeasuredSpan(action=name, start_s=self._seconds(a), end_s=self._seconds(b))
            for name, a, b in self._marks
        )

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _seconds(self, mark: Any) -> float:
        if not self._cuda:
            return float(mark)
        return self._base_s + float(self._base_event.elapsed_time(mark)) * 1e-3
