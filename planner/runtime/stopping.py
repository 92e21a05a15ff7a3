"""A run that is asked to stop saves first.

The first Ctrl-C or SIGTERM lets the step under way end, writes a checkpoint and ends
all processes; the second one ends them at once.

    started by us    the process that the user started gets the signal and leaves a
                     file in the job's folder, which the others look for; they may
                     get the signal as well, as from Slurm
    under torchrun   every process gets the signal itself

In one step some processes may know of the wish and others not yet, so they agree on
it with the sums that a step exchanges anyway.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from torch.distributed.elastic.multiprocessing import SignalException

_FILE, _AT_ONCE = "stop", "stop-at-once"
# How long a process waits for the file of the one that started it [s].
_PATIENCE_S, _PAUSE_S = 1.0, 0.05
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

    def outlive_shared_signal(self) -> None:
        """Leave a SIGTERM to the process that started this one, if that got it, too.

        One that came to this process alone ends it, as does a second one.
        """
        signal.signal(signal.SIGTERM, self._handle_shared)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._got is None:
            self._got = signal.Signals(number)
            return
        _obey(number)

    def _handle_shared(self, number: int, _: FrameType | None) -> None:
        end_s = time.monotonic() + _PATIENCE_S
        while not self.is_there and time.monotonic() < end_s:
            time.sleep(_PAUSE_S)
        if not self.is_there or self._is_for_now:
            _obey(number)
        signal.signal(number, signal.SIG_DFL)

    @property
    def _is_for_now(self) -> bool:
        return self._path is not None and self._path.with_name(_AT_ONCE).exists()


def _obey(number: int) -> None:
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
            path.with_name(_AT_ONCE).touch()
            msg = f"stopped by {asked.name}"
            raise SignalException(msg, sigval=asked)
        path.write_text(asked.name, encoding="utf-8")

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
