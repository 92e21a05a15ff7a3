"""What a card and a link can do: the catalogue, and the cluster of a user.

Memory is what CUDA reports as the card's total, which is less than its name says
(a "24 GB" RTX 3090 has 23.69 GiB, an RTX 4090 23.53 GiB). Rates are the makers'
dense figures, matrix units with fp32 accumulation. Link rates are what transfers
reach in practice, about 80 % of the wire, in one direction.
"""

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from planner.catalogue import Card, read_cards
from planner.errors import WishError
from planner.units import GIB, parse_bytes

# Our own cards, without those of the user.
CARDS = read_cards(Path(__file__).with_name("cards.toml"))


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
        Link(name="pcie5x4", bandwidth=12.5e9, latency_s=20e-6),
        Link(name="pcie5x8", bandwidth=25.0e9, latency_s=20e-6),
        Link(name="pcie5x16", bandwidth=50.0e9, latency_s=20e-6),
        Link(name="nvlink3", bandwidth=50.0e9, latency_s=10e-6),
        Link(name="gloo", bandwidth=1.5e9, latency_s=200e-6),
    )
}
_LINK = re.compile(r"(?P<rate>[^,]+)/s,(?P<latency>\d+(?:\.\d+)?)(?P<unit>us|ms|s)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
# After the name of one card, these make it the name of another.
_OTHER = "(?:ti|super|d|laptop|ada)"

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


def default_link(first: Card | None, second: Card | None) -> Link:
    """What joins two cards of which nothing has been measured.

    Args:
        first: One card; None if it is not in the catalogue.
        second: Its neighbour.

    Returns:
        The slower of what each has: PCIe of its generation and lanes, at most 8
        lanes for a card that sits on desktop boards; `pcie4x8` where nothing is
        known. Never NVLink: the bridge is sold apart.
    """
    return min(_pcie_link(first), _pcie_link(second), key=lambda link: link.bandwidth)


def _pcie_link(card: Card | None) -> Link:
    if card is None or not card.pcie:
        return LINKS["pcie4x8"]
    generation, _, lanes = card.pcie.partition("x")
    shared = min(int(lanes), 8) if card.desktop else int(lanes)
    return LINKS[f"pcie{generation}x{shared}"]


def card_files() -> tuple[Path, ...]:
    """Where a user's own cards are.

    Returns:
        Of `~/.config/planner/cards.toml`, `planner-cards.toml` in the working
        folder and the file that PLANNER_CARDS names, those there are; a card of a
        later one replaces the card of the same name before it.
    """
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    places = (Path(config, "planner", "cards.toml"), Path("planner-cards.toml"))
    named = os.environ.get("PLANNER_CARDS")
    found = [path for path in places if path.is_file()]
    # If what is named is not there, reading it says so.
    return (*found, Path(named)) if named else tuple(found)


def known_cards() -> dict[str, Card]:
    """All cards: ours and the user's own.

    Returns:
        The cards by name, ours first.

    Raises:
        ArtifactError: A file of the user cannot be read, or a key in it is wrong.
    """
    known = {_key(name): card for name, card in CARDS.items()}
    for path in card_files():
        known |= {_key(name): card for name, card in read_cards(path).items()}
    return {card.name: card for card in known.values()}


def card_named(name: str) -> Card:
    """Look a card up.

    Args:
        name: Such as `rtx3090`; case, spaces and dashes do not matter.

    Returns:
        The card.

    Raises:
        ArtifactError: A file of the user cannot be read, or a key in it is wrong.
        WishError: It is neither in the catalogue nor among the user's cards.
    """
    cards = known_cards().values()
    by_key = {_key(alias): card for card in cards for alias in card.aliases}
    by_key |= {_key(card.name): card for card in cards}
    if card := by_key.get(_key(name)):
        return card
    close = difflib.get_close_matches(_key(name), by_key, 3)
    names = dict.fromkeys(by_key[key].name for key in close)
    nearest = f"the nearest are {', '.join(names)}; " if names else ""
    msg = (
        f"unknown card '{name}'; {nearest}planner cards lists all and "
        "planner cards --help says how to add one"
    )
    raise WishError(msg)


def card_called(device_name: str) -> Card | None:
    """Find the card that a longer name speaks of.

    Args:
        device_name: What CUDA calls the card, or a name of the catalogue.

    Returns:
        The card with the longest name or alias found in it, or None; an
        `RTX 4080 SUPER` is no RTX 4080.

    Raises:
        ArtifactError: A file of the user cannot be read, or a key in it is wrong.
    """
    text = device_name.lower()
    matches = []
    for card in known_cards().values():
        for name in (card.name, *card.aliases):
            gap = r"[\s_-]*"
            pieces = gap.join(re.findall(r"[a-z]+|\d+", name))
            if re.search(rf"(?<![a-z0-9]){pieces}(?![a-z0-9]|{gap}{_OTHER}\b)", text):
                matches.append((len(name), card))
    return max(matches, key=lambda match: match[0], default=(0, None))[1]


def check_dtype(card: Card | None, dtype: str) -> None:
    """Refuse a dtype that a card has no units for.

    Args:
        card: The card; None passes, it will be measured.
        dtype: Such as `bfloat16`.

    Raises:
        WishError: The card lacks it.
    """
    if card is not None and dtype not in card.dtypes:
        has = ", ".join(card.dtypes)
        msg = (
            f"{card.name} has no {dtype}, only {has}; "
            f"profile with --dtype {card.dtypes[0]}, or use another card"
        )
        raise WishError(msg)


def _key(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.lower())


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
    def kind(self) -> str:
        """Its name without the number."""
        return self.name.rpartition(":")[0]

    @property
    def budget_bytes(self) -> int:
        """What a stage may use: capacity - reserve [bytes]."""
        return self.memory_bytes - self.reserve_bytes


# Size of a transfer that links are compared by: 2048 tokens of 4096 bf16 [bytes].
_TYPICAL = 2048 * 4096 * 2

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

    def link_after(self, device: int) -> Link:
        """What joins a device to the next one.

        Args:
            device: From 0; not the last.

        Returns:
            The link, the same in both directions.
        """
        return self.links[device] if len(self.links) > 1 else self.links[0]

    def link_between(self, here: int, there: int) -> Link:
        """What joins two devices.

        Args:
            here: From 0.
            there: Another device.

        Returns:
            The link, the same in both directions; of devices that are not
            neighbours the slowest between them, for want of a better figure.
        """
        if len(self.links) == 1:
            return self.links[0]
        low, high = sorted((here, there))
        return max(self.links[low:high], key=lambda link: link.transfer_s(_TYPICAL))
