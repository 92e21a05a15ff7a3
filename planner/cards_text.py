"""The catalogue of cards and links for the terminal, and as plain data."""

from dataclasses import asdict
from typing import Any

from planner.cards import LINKS, card_files, known_cards
from planner.catalogue import Card
from planner.table import format_table
from planner.units import format_bytes, format_seconds

_CARD_HEADER = (
    "card",
    "title",
    "memory",
    "usable",
    "bf16 TFLOP/s",
    "fp32 TFLOP/s",
    "GB/s",
    "PCIe",
    "NVLink GB/s",
)
_LINK_HEADER = ("link", "GB/s", "latency")
_LEGEND = (
    "memory is what CUDA reports, usable what its context leaves; rates are dense, "
    "bf16 with fp32\naccumulation, fp32 without TF32; PCIe is generation x lanes; "
    "NVLink is one direction, bridge or\nswitch needed"
)


def describe_cards() -> str:
    """Write the catalogue.

    Returns:
        A table of cards, what its columns are, and a table of links, without a
        newline at the end.

    Raises:
        ArtifactError: A file of the user's cards is wrong.
    """
    cards = [_card_row(card) for card in known_cards().values()]
    links = [
        (link.name, f"{link.bandwidth / 1e9:.1f}", format_seconds(link.latency_s))
        for link in LINKS.values()
    ]
    added = [f"with the cards of {path}" for path in card_files()]
    return "\n\n".join(
        (
            format_table(_CARD_HEADER, cards, num_left=2),
            "\n".join((_LEGEND, *added)),
            format_table(_LINK_HEADER, links),
        )
    )


def _card_row(card: Card) -> tuple[str, ...]:
    return (
        card.name,
        card.title,
        format_bytes(card.memory_bytes),
        format_bytes(card.usable_bytes),
        f"{card.bf16_flops / 1e12:.1f}" if card.bf16_flops else "-",
        f"{card.fp32_flops / 1e12:.1f}",
        f"{card.memory_bandwidth / 1e9:.0f}",
        card.pcie or "?",
        f"{card.nvlink_bandwidth / 1e9:.0f}" if card.nvlink_bandwidth else "-",
    )


def catalogue() -> dict[str, Any]:
    """The catalogue as plain data.

    Returns:
        `cards` with the source of each figure and `links`, lists of dictionaries;
        no bandwidth is None for a link that is free.

    Raises:
        ArtifactError: A file of the user's cards is wrong.
    """
    links = [asdict(link) for link in LINKS.values()]
    return {
        "cards": [
            asdict(card) | {"usable_bytes": card.usable_bytes, "dtypes": card.dtypes}
            for card in known_cards().values()
        ],
        "links": [
            link | {"bandwidth": None} if link["name"] == "free" else link
            for link in links
        ],
    }
