"""The processes that measure links: started, asked two at a time, ended.

Each drives one device, see `link_worker`. They find each other through a store in
this process, and their stderr goes to a file without a name, so nothing can stay
behind on disk. If this process dies, their stdin closes and they end by themselves.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Any, Literal, Self

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from planner.errors import LinkError

_WORKER = Path(__file__).with_name("link_worker.py")
_HOST = "127.0.0.1"
_START_TIMEOUT_S = 180.0
_END_TIMEOUT_S = 3.0
# When one process fails the other of its pair follows; how long to wait for that.
_ECHO_TIMEOUT_S = 1.0

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Process:
    """One process and the ends of its pipes."""

    handle: subprocess.Popen[bytes]
    tasks: IO[bytes]
    answers: IO[bytes]
    errors: IO[bytes]

    @staticmethod
    def start(setting: dict[str, Any]) -> "_Process":
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        handle = subprocess.Popen(
            # -P: a file of the user's must not pass for one of Python's.
            [sys.executable, "-P", str(_WORKER), json.dumps(setting)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=child_environment(),
        )
        assert handle.stdin is not None
        assert handle.stdout is not None
        return _Process(handle, handle.stdin, handle.stdout, errors)

    def failure(self, answer: Answer | None) -> tuple[int, str] | None:
        """Why there is no good answer, and how little that tells."""
        if answer is not None:
            text = str(answer.get("error", ""))
            return (3 if "peer" in text.lower() else 2, text) if text else None
        try:
            code = self.handle.wait(_ECHO_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return 4, "no answer"
        if code < 0:
            return 0, f"killed by {signal.Signals(-code).name}"
        self.errors.seek(0)
        text = self.errors.read().decode(errors="replace").strip()
        last = f": {text.splitlines()[-1]}" if text else ""
        return 1, f"ended with exit code {code}{last}"

    def end(self) -> None:
        """End it at once if it has not ended, and close what is left of it."""
        self.handle.kill()
        self.handle.wait()
        self.answers.close()
        self.errors.close()


class LinkProcesses:
    """One process a device, from `with` to the end of it.

    Attributes:
        names: Of the devices, by position.
    """

    names: tuple[str, ...]

    def __init__(self, count: int, backend: Literal["nccl", "gloo"]) -> None:
        self._count, self._backend = count, backend
        self._processes: list[_Process] = []
        self._store: TCPStore | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()

    def ask(
        self, pair: tuple[int, int], task: Answer, timeout_s: float
    ) -> tuple[Answer, Answer]:
        """Give the two processes of a pair the same task.

        Args:
            pair: Their positions.
            task: Plain data.
            timeout_s: How long both may take [s].

        Returns:
            Their answers, in the order of the pair.

        Raises:
            LinkError: They did not answer in time, or one failed; all processes end
                with the `with` around this.
        """
        line = (json.dumps(task | {"pair": pair}) + "\n").encode()
        for position in pair:
            with contextlib.suppress(BrokenPipeError):  # `_collect` sees it, too
                self._processes[position].tasks.write(line)
        who = " and ".join(f"device {p} ({self.names[p]})" for p in pair)
        try:
            found = self._collect(pair, timeout_s)
        except TimeoutError:
            msg = (
                f"{who} did not finish exchanging tensors within {timeout_s:g} s"
                f"{next_step(self._backend)}; --link-timeout gives them longer"
            )
            raise LinkError(msg) from None
        if why := self._failure(pair, found):
            msg = f"{who} cannot exchange tensors: {why}{next_step(self._backend)}"
            raise LinkError(msg)
        first, second = pair
        return found[first], found[second]

    def _start(self) -> None:
        self._store = TCPStore(_HOST, 0, is_master=True, wait_for_workers=False)
        positions = range(self._count)
        for position in positions:
            setting = {
                "backend": self._backend,
                "position": position,
                "host": _HOST,
                "port": self._store.port,
            }
            self._processes.append(_Process.start(setting))
        try:
            found = self._collect(positions, _START_TIMEOUT_S)
        except TimeoutError:
            msg = f"{self._count} processes did not start in {_START_TIMEOUT_S:g} s"
            raise LinkError(msg) from None
        if why := self._failure(positions, found):
            msg = f"the processes that measure links cannot start: {why}"
            raise LinkError(msg)
        self.names = tuple(found[position]["name"] for position in positions)

    def _collect(self, positions: Sequence[int], timeout_s: float) -> dict[int, Answer]:
        """One answer of each; of fewer as soon as one of them failed."""
        found: dict[int, Answer] = {}
        waiting = {self._processes[p].answers.fileno(): p for p in positions}
        deadline_s = time.monotonic() + timeout_s
        failed = False
        while waiting:
            ready = wait(list(waiting), max(deadline_s - time.monotonic(), 0.0))
            if not ready and not failed:
                raise TimeoutError
            if not ready:
                break
            for file in ready:
                assert isinstance(file, int)
                position = waiting.pop(file)
                line = self._processes[position].answers.readline()
                if line:
                    found[position] = json.loads(line)
                if not failed and (not line or "error" in found[position]):
                    failed = True
                    deadline_s = time.monotonic() + _ECHO_TIMEOUT_S
        return found

    def _failure(self, positions: Iterable[int], found: dict[int, Answer]) -> str:
        """The reason that tells most; empty if all have answered."""
        reasons = [
            (*why, position)
            for position in positions
            if (why := self._processes[position].failure(found.get(position)))
        ]
        if not reasons:
            return ""
        _, text, position = min(reasons)
        return f"process {position}: {text}"

    def _end(self) -> None:
        """End all processes: by their own will, or soon after against it."""
        try:
            for process in self._processes:
                process.tasks.close()
            deadline_s = time.monotonic() + _END_TIMEOUT_S
            for process in self._processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.handle.wait(max(deadline_s - time.monotonic(), 0.0))
        finally:
            for process in self._processes:
                process.end()
            self._store = None


def child_environment() -> dict[str, str]:
    """What the processes are told; the user's own settings win.

    Returns:
        Names and values.
    """
    # nvidia-smi's order, so that names and positions agree.
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "OMP_NUM_THREADS": "1",
        **os.environ,
    }


def next_step(backend: str) -> str:
    """What to try when two devices cannot exchange tensors.

    Args:
        backend: Of the transfers.

    Returns:
        The end of a sentence; empty if there is nothing to try.
    """
    if backend == "gloo":
        return ""
    if os.environ.get("NCCL_P2P_DISABLE", "0") == "0":
        return "; try again with NCCL_P2P_DISABLE=1 in the environment"
    return "; NCCL_P2P_DISABLE is set already, NCCL_DEBUG=INFO tells more"
