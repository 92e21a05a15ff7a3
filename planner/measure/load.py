"""Other processes that do the same work while a layer is timed.

The devices of a CPU run share its caches, its memory bandwidth and its clock rate,
so a layer that is timed while the other cores have nothing to do is too quick. Each
process builds the very layer that is about to be timed and runs it round after
round, with one thread, until it is told the next one. They end with the `with` around
them, and by themselves when this process is gone.

Known limitations: in a run another device may be at another layer, or waiting.
"""

import contextlib
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Self

from planner.errors import ModelError
from planner.measure.load_process import LayerWork, LoadedModel, serve

# Importing, finding the layers, and building a large one.
_READY_TIMEOUT_S = 600.0
_END_TIMEOUT_S = 3.0


class Load:
    """The other processes, from `with` to the end of it.

    Args:
        num_processes: That work at once, this one included.
        model: Whose layers they run.
    """

    def __init__(self, num_processes: int, model: LoadedModel):
        self._num_others, self._model = num_processes - 1, model
        self._processes: list[tuple[BaseProcess, Connection]] = []

    def __enter__(self) -> Self:
        try:
            for _ in range(self._num_others):
                self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()

    @contextlib.contextmanager
    def like(self, work: LayerWork) -> Iterator[None]:
        """Keep the other processes busy.

        Args:
            work: What they do, again and again.

        Yields:
            Nothing, once all of them are at it.

        Raises:
            ModelError: One of them failed, with its error, or hangs.
        """
        for _, connection in self._processes:
            with contextlib.suppress(OSError):  # `_hear` says why
                connection.send(work)
        deadline_s = time.monotonic() + _READY_TIMEOUT_S
        for position in range(len(self._processes)):
            self._hear(position, deadline_s)
        yield
        for position, (process, connection) in enumerate(self._processes):
            if connection.poll() or not process.is_alive():
                self._hear(position, deadline_s)
            with contextlib.suppress(OSError):
                connection.send(None)

    def _start(self) -> None:
        # Not a fork: torch's threads would be missing in it.
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(self._model, there), daemon=True)
        process.start()
        there.close()
        self._processes.append((process, here))

    def _hear(self, position: int, deadline_s: float) -> None:
        """Wait until a process is ready; an error of it is the user's."""
        process, connection = self._processes[position]
        why = f"did not answer within {_READY_TIMEOUT_S:g} s"
        if connection.poll(max(deadline_s - time.monotonic(), 0.0)):
            try:
                why = connection.recv()
            except EOFError:
                process.join(_END_TIMEOUT_S)
                why = f"ended with exit code {process.exitcode}"
        if why:
            msg = (
                f"a process that computes while layers are timed {why}; profile with "
                "fewer --num-processes"
            )
            raise ModelError(msg)

    def _end(self) -> None:
        try:
            for _, connection in self._processes:
                connection.close()
        finally:
            for process, _ in self._processes:
                process.kill()
            for process, _ in self._processes:
                process.join(_END_TIMEOUT_S)
                process.close()
            self._processes.clear()
