"""One of the processes that measure links: it drives one device.

`link_processes` starts this file as a script, so that it imports torch and
nothing else. Its only argument is JSON: its device, its position and where the
store listens. It says its device's name, then answers each line that it is sent:

    {"pair": [0, 2], "num_bytes": 67108864}    join device 2, exchange, answer
    {"latency_s": ..., "send_s": ..., "receive_s": ..., "wrong_bytes": ...}

Both of a pair are sent the same line. Between two lines the process waits for the
next, with no process group open, so that nothing of it disturbs another pair. It
ends after an error, which is its last answer, and when its stdin closes, also in
the middle of an exchange that hangs.
"""

import json
import os
import queue
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import PrefixStore, Store

_NUM_PINGS, _NUM_WARMUP_PINGS = 100, 10
_NUM_TRANSFERS, _NUM_WARMUP_TRANSFERS = 7, 2


class Line:
    """The connection of this device to another one, and what went wrong on it.

    Attributes:
        device: Of this process.
        me: 0 on the first device of the pair, 1 on the second.
        wrong_bytes: Of the tensor that arrived most changed [bytes].
        zeros: Whether one arrived as nothing but zeros.
    """

    def __init__(self, device: torch.device, me: int) -> None:
        self.device, self.me = device, me
        self.wrong_bytes, self.zeros = 0, False

    def drain(self) -> None:
        """Wait until the device has done all that it was told to."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def send(self, tensor: torch.Tensor) -> None:
        """Send a tensor to the other device.

        Args:
            tensor: Any, contiguous.
        """
        dist.send(tensor, 1 - self.me)

    def receive(self, tensor: torch.Tensor) -> None:
        """Receive a tensor from the other device.

        Args:
            tensor: Takes it.
        """
        dist.recv(tensor, 1 - self.me)

    def swap(self, out: torch.Tensor, into: torch.Tensor) -> None:
        """Send and receive at the same time.

        Args:
            out: Is sent.
            into: Takes what the other sends.
        """
        operations = [
            dist.P2POp(dist.isend, out, 1 - self.me),
            dist.P2POp(dist.irecv, into, 1 - self.me),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    def meet(self) -> None:
        """Wait for the other device, and drain both."""
        here, there = self.numbers(1, self.me), self.blank(1)
        self.drain()
        self.swap(here, there)
        self.drain()

    def numbers(self, count: int, sender: int) -> torch.Tensor:
        """What a device sends: every number tells its place and its sender.

        Args:
            count: How many.
            sender: 0 or 1.

        Returns:
            int32 [count] without zeros.
        """
        places = torch.arange(count, dtype=torch.int32, device=self.device)
        return places * 3 + (1 + sender)

    def blank(self, count: int) -> torch.Tensor:
        """Room for what arrives.

        Args:
            count: How many numbers.

        Returns:
            int32 [count] of zeros.
        """
        return torch.zeros(count, dtype=torch.int32, device=self.device)

    def compare(self, arrived: torch.Tensor, expected: torch.Tensor) -> None:
        """Keep in mind what did not arrive as it was sent.

        Args:
            arrived: int32 [count].
            expected: int32 [count].
        """
        if not torch.equal(arrived, expected):
            wrong_bytes = 4 * int((arrived != expected).sum().item())
            self.wrong_bytes = max(self.wrong_bytes, wrong_bytes)
            self.zeros = self.zeros or not bool(arrived.any().item())


def measure_pair(line: Line, num_bytes: int) -> dict[str, Any]:
    """Measure the link to the other device, which does the same.

    Args:
        line: To the other device.
        num_bytes: Of a large transfer [bytes].

    Returns:
        `latency_s`, half of a round trip of one number; `send_s`, what a large
        transfer from here takes besides; `receive_s`, what one to here takes while
        as much goes from here; all medians [s]. And what did not arrive as sent.
    """
    latency_s = _latency_s(line)
    count = num_bytes // 4
    out, into = line.numbers(count, line.me), line.blank(count)
    expected = line.numbers(count, 1 - line.me)
    send_s = 0.0
    for sender in (0, 1):
        if sender == line.me:
            send_s = _median_s(lambda: _send_s(line, out))
        else:
            _median_s(lambda: _receive_s(line, into, expected))
    receive_s = _median_s(lambda: _swap_s(line, out, into, expected))
    return {
        "latency_s": latency_s,
        "send_s": _without(2 * latency_s, send_s),  # there, and the echo back
        "receive_s": _without(latency_s, receive_s),
        "wrong_bytes": line.wrong_bytes,
        "zeros": line.zeros,
    }


def _median_s(transfer: Callable[[], float]) -> float:
    seconds = [transfer() for _ in range(_NUM_WARMUP_TRANSFERS + _NUM_TRANSFERS)]
    return statistics.median(seconds[_NUM_WARMUP_TRANSFERS:])


def _without(latency_s: float, seconds: float) -> float:
    """Time of the bytes alone; of small transfers at least half."""
    return max(seconds - latency_s, seconds / 2)


def _latency_s(line: Line) -> float:
    count = _NUM_WARMUP_PINGS + _NUM_PINGS
    out, into = line.numbers(count, line.me), line.blank(count)
    seconds = []
    line.meet()
    for i in range(count):
        mine, theirs = out[i : i + 1], into[i : i + 1]
        begin_s = time.perf_counter()
        if line.me == 0:
            line.send(mine)
            line.receive(theirs)
        else:
            line.receive(theirs)
            line.send(mine)
        line.drain()
        seconds.append(time.perf_counter() - begin_s)
    line.compare(into, line.numbers(count, 1 - line.me))
    return statistics.median(seconds[_NUM_WARMUP_PINGS:]) / 2


def _send_s(line: Line, out: torch.Tensor) -> float:
    echo = line.blank(1)
    line.meet()
    begin_s = time.perf_counter()
    line.send(out)
    line.receive(echo)
    line.drain()
    return time.perf_counter() - begin_s


def _receive_s(line: Line, into: torch.Tensor, expected: torch.Tensor) -> float:
    into.zero_()
    echo = line.numbers(1, line.me)
    line.meet()
    begin_s = time.perf_counter()
    line.receive(into)
    line.send(echo)
    line.drain()
    seconds = time.perf_counter() - begin_s
    line.compare(into, expected)
    return seconds


def _swap_s(
    line: Line, out: torch.Tensor, into: torch.Tensor, expected: torch.Tensor
) -> float:
    into.zero_()
    line.meet()
    begin_s = time.perf_counter()
    line.swap(out, into)
    line.drain()
    seconds = time.perf_counter() - begin_s
    line.compare(into, expected)
    return seconds


def answer(
    setting: dict[str, Any], task: dict[str, Any], store: Store
) -> dict[str, Any]:
    """Join the other device of a pair, measure, and part again.

    Args:
        setting: The argument of the script.
        task: A line that was sent.
        store: Of all processes.

    Returns:
        What `measure_pair` says.
    """
    pair, device = task["pair"], _device(setting)
    me = pair.index(setting["position"])
    dist.init_process_group(
        setting["backend"],
        store=PrefixStore(f"{pair[0]}-{pair[1]}", store),
        rank=me,
        world_size=2,
        device_id=device if device.type == "cuda" else None,
    )
    found = measure_pair(Line(device, me), task["num_bytes"])
    dist.destroy_process_group()
    return found


def _device(setting: dict[str, Any]) -> torch.device:
    if setting["backend"] == "nccl":
        return torch.device("cuda", setting["position"])
    return torch.device("cpu")


def _listen(tasks: "queue.Queue[dict[str, Any]]") -> None:
    """Take what is sent; when nobody can send any more, end the process."""
    for line in sys.stdin:
        tasks.put(json.loads(line))
    os._exit(0)


def main() -> None:
    """Answer until stdin closes or something fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this ends it
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    setting = json.loads(sys.argv[1])
    tasks: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    try:
        torch.set_num_threads(1)
        found = {"name": _open(_device(setting))}
        store = TCPStore(setting["host"], setting["port"], is_master=False)
        while True:
            answers.write(json.dumps(found) + "\n")
            found = answer(setting, tasks.get(), store)
    except Exception as error:
        text = " ".join(str(error).split())
        answers.write(json.dumps({"error": f"{type(error).__name__}: {text}"}) + "\n")
        os._exit(1)  # to close an open group could take for ever


def _open(device: torch.device) -> str:
    """Get a device ready; return its name."""
    if device.type == "cpu":
        return "cpu"
    torch.cuda.set_device(device)
    torch.zeros(1, device=device)  # its context takes seconds
    return torch.cuda.get_device_name(device)


if __name__ == "__main__":
    main()
