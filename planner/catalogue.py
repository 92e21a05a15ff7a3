"""The file that cards are written in: ours, `cards.toml`, and a user's own.

    [rtx3090]
    title = "GeForce RTX 3090"
    memory_mib = 24259
    bf16_tflops = 71.0
    ...

`docs/cards.md` says what each figure is. Every key is checked: a misspelt one
would silently leave a default in its place.
"""

import difflib
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.errors import ArtifactError
from planner.units import MIB

# The upper end of what a CUDA context takes; it is there before any tensor.
DEFAULT_CONTEXT_MIB = 512

# Words that stand where a card can stand, so that no card may be called so.
_RESERVED = {"auto", "cpu", "cuda", "gpu"}
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A kind of card.

    Attributes:
        name: As the user writes it, such as `rtx3090`.
        title: As the maker writes it.
        memory_bytes: Total that CUDA reports [bytes].
        context_bytes: Of it, gone before a process has its first tensor [bytes].
        bf16_flops: Dense matrix rate, fp32 accumulation; 0 if the card has no
            bfloat16 [FLOP/s].
        fp32_flops: Plain fp32 rate, without TF32 [FLOP/s].
        memory_bandwidth: Of the card's own memory [bytes/s].
        compute_capability: CUDA's, such as `8.6`; empty if unknown.
        pcie: Generation and lanes of the card, such as `4x16`; empty if unknown.
        nvlink_bandwidth: All links, one direction; 0 if it has none [bytes/s].
        desktop: Whether it sits on desktop boards, where two cards or more share
            the 16 lanes of the processor.
        aliases: Other names; also how CUDA's name for the card is recognised.
        sources: Where each figure is from, by its key in the file.
    """

    name: str
    title: str
    memory_bytes: int
    bf16_flops: float
    fp32_flops: float
    memory_bandwidth: float
    context_bytes: int = DEFAULT_CONTEXT_MIB * MIB
    compute_capability: str = ""
    pcie: str = ""
    nvlink_bandwidth: float = 0.0
    desktop: bool = False
    aliases: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def usable_bytes(self) -> int:
        """What is left for tensors after the context [bytes]."""
        return self.memory_bytes - self.context_bytes

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of planner's dtypes, those that the card has."""
        return ("bfloat16", "float32") if self.bf16_flops else ("float32",)


def read_cards(path: Path) -> dict[str, Card]:
    """Read a file of cards.

    Args:
        path: A TOML file with one table a card.

    Returns:
        The cards by name, in the order of the file.

    Raises:
        ArtifactError: The file cannot be read, or a key is missing or wrong.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"cannot read the cards in {path}: {error.strerror}"
        raise ArtifactError(msg) from error
    except ValueError as error:  # not TOML, or not UTF-8
        msg = f"{path} is not TOML: {error}"
        raise ArtifactError(msg) from error
    cards = {}
    for name, table in tables.items():
        try:
            cards[name] = _card(name, table)
        except ValueError as error:
            msg = f"{path}: card '{name}': {error}"
            raise ArtifactError(msg) from error
    return cards


def _card(name: str, table: Any) -> Card:
    """Make a card of its table; a ValueError says what is wrong with it."""
    if not isinstance(table, dict):
        msg = f"a card is a table; write [card] on a line, not {name} = {table!r}"
        raise ValueError(msg)
    if not _NAME.fullmatch(name) or name in _RESERVED:
        msg = (
            "a name is lower-case letters, digits and dashes, begins with a letter "
            f"and is none of {', '.join(sorted(_RESERVED))}"
        )
        raise ValueError(msg)
    for key in table:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, 1)
            hint = (
                f"did you mean {close[0]}?" if close else f"known: {', '.join(_KEYS)}"
            )
            msg = f"unknown key {key}; {hint}"
            raise ValueError(msg)
    for key in _REQUIRED:
        if key not in table:
            msg = f"{key} is missing"
            raise ValueError(msg)
    values = {key: _KEYS[key](key, value) for key, value in table.items()}
    context_mib = values.get("context_mib", DEFAULT_CONTEXT_MIB)
    if context_mib >= values["memory_mib"]:
        msg = f"context_mib {context_mib} leaves nothing of memory_mib"
        raise ValueError(msg)
    return Card(
        name=name,
        title=values.get("title", name),
        memory_bytes=int(values["memory_mib"] * MIB),
        context_bytes=int(context_mib * MIB),
        bf16_flops=values["bf16_tflops"] * 1e12,
        fp32_flops=values["fp32_tflops"] * 1e12,
        memory_bandwidth=values["bandwidth_gb_s"] * 1e9,
        compute_capability=values.get("compute_capability", ""),
        pcie=values.get("pcie", ""),
        nvlink_bandwidth=values.get("nvlink_gb_s", 0.0) * 1e9,
        desktop=values.get("desktop", False),
        aliases=values.get("aliases", ()),
        sources=values.get("sources", {}),
    )


def _positive(key: str, value: Any) -> float:
    number = _not_negative(key, value)
    if number == 0:
        msg = f"{key} is {value!r}, not a number above 0"
        raise ValueError(msg)
    return number


def _not_negative(key: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Infinity and NaN are numbers in TOML.
    if not is_number or not 0 <= value < 1e12:
        msg = f"{key} is {value!r}, not a number from 0"
        raise ValueError(msg)
    return float(value)


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        msg = f"{key} is {value!r}, not a text in quotes"
        raise ValueError(msg)
    return value


def _version(key: str, value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"\d+\.\d+", value):
        msg = f'{key} is {value!r}, not a text such as "8.6"'
        raise ValueError(msg)
    return value


def _pcie(key: str, value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[345]x(4|8|16)", value):
        msg = (
            f'{key} is {value!r}, not generation and lanes such as "4x16" '
            "(generation 3 to 5; 4, 8 or 16 lanes)"
        )
        raise ValueError(msg)
    return value


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        msg = f"{key} is {value!r}, neither true nor false"
        raise ValueError(msg)
    return value


def _names(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(
        isinstance(name, str) and _NAME.fullmatch(name) for name in value
    ):
        msg = f"{key} is {value!r}, not a list of names such as those of cards"
        raise ValueError(msg)
    return tuple(value)


def _sources(key: str, value: Any) -> dict[str, str]:
    """From figures by source, as they are written, to the source of each figure."""
    found: dict[str, str] = {}
    if not isinstance(value, dict):
        msg = f'{key} is {value!r}, not a table of "source" = ["figure", ...]'
        raise ValueError(msg)
    for source, figures in value.items():
        for figure in figures if isinstance(figures, list) else [figures]:
            if figure not in FIGURES:
                msg = f"{key}: {figure!r} is none of {', '.join(FIGURES)}"
                raise ValueError(msg)
            found[figure] = source
    return found


_FIGURES: dict[str, Callable[[str, Any], Any]] = {
    "memory_mib": _positive,
    "context_mib": _not_negative,
    "bf16_tflops": _not_negative,
    "fp32_tflops": _positive,
    "bandwidth_gb_s": _positive,
    "compute_capability": _version,
    "pcie": _pcie,
    "nvlink_gb_s": _not_negative,
}
_KEYS = {
    "title": _text,
    "aliases": _names,
    **_FIGURES,
    "desktop": _flag,
    "sources": _sources,
}
_REQUIRED = ("memory_mib", "bf16_tflops", "fp32_tflops", "bandwidth_gb_s")

# Every figure of a card, by its key in the file.
FIGURES = tuple(_FIGURES)
