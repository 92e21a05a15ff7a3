"""What joins the devices of this machine: measured pair by pair.

Every pair measures alone. It sends one number back and forth for the latency, a
large tensor each way for the bandwidth, and two at once for what is left of it
when outputs go one way while gradients come back. Each tensor is known to its
receiver, which compares: some cards offer peer-to-peer copies and deliver zeros.

Known limitations: one machine; latency is half of a round trip, the same in both
directions; several pairs at once may share a switch and be slower.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, Literal

import torch

from planner.errors import LinkError, WishError
from planner.measure.link_processes import LinkProcesses, next_step
from planner.model_profile import MeasuredLink, ProfiledCluster
from planner.units import MIB, format_bytes

DEFAULT_TIMEOUT_S = 30.0
_NUM_BYTES = {"cuda": 64 * MIB, "cpu": 16 * MIB}
_NUM_CPU_PROCESSES = 2


def measure_links(
    device: Literal["cuda", "cpu"],
    *,
    num_processes: int | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    num_bytes: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> ProfiledCluster:
    """Measure every ordered pair of devices of this machine.

    One process a device is started, and gone at the end.

    Args:
        device: `cuda` measures cards over NCCL, `cpu` processes over gloo.
        num_processes: Devices to measure, the first ones; None for all cards, or
            for two processes on the CPU.
        timeout_s: For one pair [s].
        num_bytes: Of a large transfer; None for 64 MiB on cards, 16 MiB on the
            CPU [bytes].
        progress: Is told what is being done.

    Returns:
        Names of the devices and every ordered pair.

    Raises:
        LinkError: A pair hangs, fails, or does not deliver what was sent.
        WishError: There are not so many devices, or fewer than two.
    """
    count = _count(device, num_processes)
    backend: Literal["nccl", "gloo"] = "nccl" if device == "cuda" else "gloo"
    num_bytes = num_bytes or _NUM_BYTES[device]
    links: list[MeasuredLink] = []
    progress(f"starting {count} processes to measure links over {backend}")
    with LinkProcesses(count, backend) as processes:
        for pair in combinations(range(count), 2):
            progress(f"measuring the link of devices {pair[0]} and {pair[1]}")
            answers = processes.ask(pair, {"num_bytes": num_bytes}, timeout_s)
            check_arrivals(processes.names, pair, answers, backend)
            links += _both_directions(pair, answers, num_bytes)
    links.sort(key=lambda link: (link.source, link.target))
    return ProfiledCluster(devices=processes.names, backend=backend, links=tuple(links))


def usual_device() -> Literal["cuda", "cpu"]:
    """Between what links are measured when nobody says.

    Returns:
        `cuda` where torch can use a card.
    """
    return "cuda" if torch.cuda.is_available() else "cpu"


def _count(device: Literal["cuda", "cpu"], num_processes: int | None) -> int:
    if device == "cpu":
        count = _NUM_CPU_PROCESSES if num_processes is None else num_processes
        if count < 2:
            msg = f"--num-processes {count}: a link joins two processes; use 2 or more"
            raise WishError(msg)
        return count
    num_cards = torch.cuda.device_count()
    count = num_cards if num_processes is None else num_processes
    if count < 2 or count > num_cards:
        wish = "" if num_processes is None else f"--num-processes {count}: "
        msg = (
            f"{wish}a link joins two cards, and torch can use {num_cards} here; "
            "leave out --links, or measure processes with --device cpu"
        )
        raise WishError(msg)
    return count


def check_arrivals(
    names: Sequence[str],
    pair: tuple[int, int],
    answers: Sequence[dict[str, Any]],
    backend: str,
) -> None:
    """Make sure that both devices of a pair got what the other one sent.

    Args:
        names: Of all devices, by position.
        pair: Positions of the two.
        answers: What their processes say, in the order of the pair.
        backend: Of the transfers.

    Raises:
        LinkError: Something arrived changed, with the direction and the next step.
    """
    for source, target in ((0, 1), (1, 0)):
        if wrong_bytes := answers[target]["wrong_bytes"]:
            sender, receiver = (
                f"device {pair[end]} ({names[pair[end]]})" for end in (source, target)
            )
            how = "as zeros" if answers[target]["zeros"] else "changed"
            msg = (
                f"what {sender} sends does not reach {receiver} as it was sent: "
                f"{format_bytes(wrong_bytes)} arrived {how}{next_step(backend)}"
            )
            raise LinkError(msg)


def _both_directions(
    pair: tuple[int, int], answers: Sequence[dict[str, Any]], num_bytes: int
) -> Iterator[MeasuredLink]:
    for source, target in ((0, 1), (1, 0)):
        yield MeasuredLink(
            source=pair[source],
            target=pair[target],
            bandwidth=num_bytes / answers[source]["send_s"],
            duplex_bandwidth=num_bytes / answers[target]["receive_s"],
            latency_s=answers[source]["latency_s"],
        )
