"""What a card and a link can do: the catalogue, and the cluster of a user.

Memory is what the driver reports as the card's total, which is less than its
name says (a "24 GB" RTX 3090 has 23.69 GiB, an RTX 4090 23.53 GiB). Rates are
the makers' dense figures, matrix units with fp32 accumulation. Link rates are
what transfers reach in practice, about 80 % of the wire, in one direction.
"""

import re
from dataclasses import dataclass
from typing import Literal

from planner.errors import WishError
from planner.units import GIB, parse_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A kind of card.

    Attributes:
        name: As the user writes it, such as `rtx3090`.
        title: As the maker writes it.
        memory_bytes: Total that the driver reports [bytes].
        bf16_flops: Dense matrix rate, fp32 accumulation [FLOP/s].
        fp32_flops: fp32 rate [FLOP/s].
        memory_bandwidth: Of the card's own memory [bytes/s].
    """

    name: str
    title: str
    memory_bytes: int
    bf16_flops: float
    fp32_flops: float
    memory_bandwidth: float


def _card(
    name: str, title: str, gib: float, bf16: float, fp32: float, gbps: float
) -> Card:
    return Card(
        name=name,
        title=title,
        memory_bytes=int(gib * GIB),
        bf16_flops=bf16 * 1e12,
        fp32_flops=fp32 * 1e12,
        memory_bandwidth=gbps * 1e9,
    )


CARDS: dict[str, Card] = {
    card.name: card
    for card in (
        _card("rtx3060", "GeForce RTX 3060 12 GB", 11.76, 25.5, 12.7, 360),
        _card("rtx3080", "GeForce RTX 3080 10 GB", 9.78, 59.5, 29.8, 760),
        _card("rtx3090", "GeForce RTX 3090", 23.69, 71.0, 35.6, 936),
        _card("rtx3090ti", "GeForce RTX 3090 Ti", 23.68, 80.0, 40.0, 1008),
        _card("rtx4060ti", "GeForce RTX 4060 Ti 16 GB", 15.60, 44.0, 22.1, 288),
        _card("rtx4080", "GeForce RTX 4080", 15.70, 97.5, 48.7, 717),
        _card("rtx4090", "GeForce RTX 4090", 23.53, 165.2, 82.6, 1008),
        _card("rtx5090", "GeForce RTX 5090", 31.36, 209.5, 104.8, 1792),
        _card("a5000", "RTX A5000", 23.67, 55.6, 27.8, 768),
        _card("a6000", "RTX A6000", 47.53, 77.4, 38.7, 768),
        _card("l4", "L4", 22.05, 60.5, 30.3, 300),
        _card("a10g", "A10G", 22.20, 35.0, 31.5, 600),
        _card("a100", "A100 SXM 80 GB", 79.15, 312.0, 19.5, 2039),
        _card("h100", "H100 SXM 80 GB", 79.11, 989.0, 66.9, 3350),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What joins two cards.

    Attributes:
        name: As the user writes it, such as `pcie4x16`.
        bandwidth: In one direction [bytes/s]; infinite for `free`.
        latency_s: Of one transfer [s].
    """

    name: str
    bandwidth: float
    latency_s: float

    def transfer_s(self, num_bytes: int) -> float:
        """Time of one transfer.

        Args:
            num_bytes: What is sent [bytes].

        Returns:
            latency + num_bytes / bandwidth [s]; nothing takes no time.
        """
        return self.latency_s + num_bytes / self.bandwidth if num_bytes else 0.0


LINKS: dict[str, Link] = {
    link.name: link
    for link in (
        Link(name="free", bandwidth=float("inf"), latency_s=0.0),
        Link(name="pcie3x4", bandwidth=3.1e9, latency_s=20e-6),
        Link(name="pcie3x8", bandwidth=6.2e9, latency_s=20e-6),
        Link(name="pcie3x16", bandwidth=12.5e9, latency_s=20e-6),
        Link(name="pcie4x4", bandwidth=6.2e9, latency_s=20e-6),
        Link(name="pcie4x8", bandwidth=12.5e9, latency_s=20e-6),
        Link(name="pcie4x16", bandwidth=25.0e9, latency_s=20e-6),
        Link(name="nvlink3", bandwidth=50.0e9, latency_s=10e-6),
        Link(name="gloo", bandwidth=1.5e9, latency_s=200e-6),
    )
}
_LINK = re.compile(r"(?P<rate>[^,]+)/s,(?P<latency>\d+(?:\.\d+)?)(?P<unit>us|ms|s)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}

# What a training process loses before its first tensor on a CUDA card: context
# (0.3-0.5 GiB), NCCL's buffers, and the allocator's slack.
DEFAULT_CUDA_RESERVE_BYTES = int(1.5 * GIB)


def parse_link(text: str) -> Link:
    """Read a link: a name of the catalogue or `12GB/s,10us`.

    Args:
        text: As the user wrote it.

    Returns:
        The link.

    Raises:
        WishError: It is neither.
    """
    if text in LINKS:
        return LINKS[text]
    if match := _LINK.fullmatch(text.replace(" ", "")):
        bandwidth = parse_bytes(match["rate"])
        if bandwidth:
            latency_s = float(match["latency"]) * _SECONDS[match["unit"]]
            return Link(name=text, bandwidth=float(bandwidth), latency_s=latency_s)
    msg = f"'{text}' is not a link; use {', '.join(LINKS)} or for example 12GB/s,10us"
    raise WishError(msg)


def card_named(name: str) -> Card:
    """Look a card up.

    Args:
        name: Such as `rtx3090`; case, spaces and dashes do not matter.

    Returns:
        The card.

    Raises:
        WishError: It is not in the catalogue.
    """
    key = re.sub(r"[\s_-]", "", name.lower())
    if key not in CARDS:
        msg = f"unknown card '{name}'; the catalogue has {', '.join(CARDS)}"
        raise WishError(msg)
    return CARDS[key]


def card_in(device_name: str) -> Card | None:
    """The card of the catalogue that a device is.

    Args:
        device_name: The catalogue's or CUDA's name, with or without a position.

    Returns:
        The card with the longest name found in it, or None.
    """
    name = device_name.lower()
    matches = []
    for card in CARDS.values():
        pieces = re.findall(r"[a-z]+|\d+", card.name)
        pattern = r"(?<![a-z0-9])" + r"[\s_-]*".join(pieces) + r"(?![a-z0-9])"
        if re.search(pattern, name):
            matches.append(card)
    return max(matches, key=lambda card: len(card.name), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One card of a user's cluster.

    Attributes:
        name: Unique, such as `rtx3090:0`; a name, not a position.
        memory_bytes: Capacity [bytes].
        reserve_bytes: Kept free of the plan [bytes].
        speed: Relative to the device of the profile; 2.0 halves all times.
    """

    name: str
    memory_bytes: int
    reserve_bytes: int = 0
    speed: float = 1.0

    def __post_init__(self) -> None:
        if self.speed <= 0:
            msg = f"speed of {self.name} is {self.speed}, not above 0"
            raise ValueError(msg)

    @property
    def budget_bytes(self) -> int:
        """What a stage may use: capacity - reserve [bytes]."""
        return self.memory_bytes - self.reserve_bytes


LinksFrom = Literal["given", "measured", "assumed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cards of a user, in the order of the stages, and what joins them.

    Attributes:
        devices: One entry a card.
        links: From each card to the next; a single entry stands for all.
        links_from: Whether the links were `given` by the user, `measured`, or
            `assumed` for want of both.
        type: `cuda` or `cpu`.
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    links_from: LinksFrom = "given"
    type: Literal["cuda", "cpu"] = "cuda"

    def __post_init__(self) -> None:
        if not self.devices:
            msg = "a cluster needs at least one device"
            raise ValueError(msg)
        if len(self.links) not in (1, len(self.devices) - 1):
            msg = f"{len(self.links)} links for {len(self.devices)} devices in a row"
            raise ValueError(msg)

    def __len__(self) -> int:
        return len(self.devices)

    def link_after(self, stage: int) -> Link:
        """What joins a stage to the next one.

        Args:
            stage: From 0; not the last.

        Returns:
            The link, the same in both directions.
        """
        return self.links[stage] if len(self.links) > 1 else self.links[0]
