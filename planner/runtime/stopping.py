"""A run that is asked to stop saves first.

The first Ctrl-C or SIGTERM lets the step under way end, writes a checkpoint and ends
all processes; the second one ends them at once.

    started by us    the process that the user started gets the signal and leaves a
                     file in the job's folder, which the others look for
    under torchrun   every process gets the signal itself

In one step some processes may know of the wish and others not yet, so they agree on
it with the sums that a step exchanges anyway.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from torch.distributed.elastic.multiprocessing import SignalException

_FILE = "stop"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopWish:
    """Whether somebody asked this process to stop.

    Args:
        work_dir: The job's folder, where the process that started this one leaves
            its file; None if nobody does.
    """

    def __init__(self, work_dir: Path | None = None):
        self._path = None if work_dir is None else work_dir / _FILE
        self._got: signal.Signals | None = None

    @property
    def is_there(self) -> bool:
        """True once somebody asked."""
        there = self._path is not None and self._path.exists()
        return there or self._got is not None

    def remember_signals(self) -> None:
        """Note the first signal to this process, obey the second."""
        for number in _SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._got is None:
            self._got = signal.Signals(number)
            return
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def stop_signal(work_dir: Path) -> signal.Signals | None:
    """Which signal asked a run to stop.

    Args:
        work_dir: The job's folder.

    Returns:
        The signal; None if there was none.
    """
    path = work_dir / _FILE
    return signal.Signals[path.read_text(encoding="utf-8")] if path.exists() else None


@contextlib.contextmanager
def passing_signals_on(work_dir: Path) -> Iterator[None]:
    """Leave the first signal to the processes of a job; the second one raises.

    Args:
        work_dir: The job's folder.

    Yields:
        Nothing.

    Raises:
        SignalException: A second signal came.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # which gets no signals
        return

    def handle(number: int, _: FrameType | None) -> None:
        asked = signal.Signals(number)
        path = work_dir / _FILE
        if path.exists():
            msg = f"stopped by {asked.name}"
            raise SignalException(msg, sigval=asked)
        path.write_text(asked.name, encoding="utf-8")

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
