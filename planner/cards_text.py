"""The catalogue of cards and links for the terminal, and as plain data."""

from dataclasses import asdict
from typing import Any

from planner.cards import CARDS, LINKS
from planner.table import format_table
from planner.units import format_bytes, format_seconds

_CARD_HEADER = ("card", "title", "memory", "bf16 TFLOP/s", "fp32 TFLOP/s", "GB/s")
_LINK_HEADER = ("link", "GB/s", "latency")


def describe_cards() -> str:
    """Write the catalogue.

    Returns:
        A table of cards and one of links, without a newline at the end.
    """
    cards = [
        (
            card.name,
            card.title,
            format_bytes(card.memory_bytes),
            f"{card.bf16_flops / 1e12:.1f}",
            f"{card.fp32_flops / 1e12:.1f}",
            f"{card.memory_bandwidth / 1e9:.0f}",
        )
        for card in CARDS.values()
    ]
    links = [
        (link.name, f"{link.bandwidth / 1e9:.1f}", format_seconds(link.latency_s))
        for link in LINKS.values()
    ]
    return "\n\n".join(
        (
            format_table(_CARD_HEADER, cards, num_left=2),
            format_table(_LINK_HEADER, links),
        )
    )


def catalogue() -> dict[str, Any]:
    """The catalogue as plain data.

    Returns:
        `cards` and `links`, lists of dictionaries; no bandwidth is None for a
        link that is free.
    """
    links = [asdict(link) for link in LINKS.values()]
    return {
        "cards": [asdict(card) for card in CARDS.values()],
        "links": [
            link | {"bandwidth": None} if link["name"] == "free" else link
            for link in links
        ],
    }
