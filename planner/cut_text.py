"""Reads a cut that a user wrote by hand.

Two ways of writing the same cut of 13 layers into 4 stages:

    4,5,3,1              how many layers each stage holds
    0-3,4-8,9-11,12      which layers each stage holds, from 0, both ends included

Every layer of the profile counts, embedding and head included.
"""

import re

from planner.errors import WishError

_COUNT = re.compile(r"\d+")
_RANGE = re.compile(r"(\d+)-(\d+)")


def parse_layers_per_stage(text: str, num_layers: int) -> tuple[int, ...]:
    """Read how many layers each stage holds.

    `3,9-11`-like mixtures are ranges: a single number is then one layer.

    Args:
        text: Counts or ranges, joined by commas.
        num_layers: Of the profile.

    Returns:
        Layers of each stage; all are at least 1 and their sum is `num_layers`.

    Raises:
        WishError: It is neither, a stage is empty, or a layer is missing or twice.
    """
    parts = text.replace(" ", "").split(",")
    if any(_RANGE.fullmatch(part) for part in parts):
        return _from_ranges(parts, num_layers, text)
    if not all(_COUNT.fullmatch(part) for part in parts):
        msg = f"'{text}' is no cut; write for example 4,5,3,1 or 0-3,4-8,9-11,12"
        raise WishError(msg)
    counts = tuple(map(int, parts))
    if 0 in counts:
        msg = (
            f"stage {counts.index(0)} of '{text}' has no layer; give each at least one"
        )
        raise WishError(msg)
    if sum(counts) != num_layers:
        msg = (
            f"'{text}' adds up to {sum(counts)} layers but the model has {num_layers}, "
            "embedding and head included"
        )
        raise WishError(msg)
    return counts


def _from_ranges(parts: list[str], num_layers: int, text: str) -> tuple[int, ...]:
    counts = []
    expected = 0
    for stage, part in enumerate(parts):
        first, last = _range(part, text)
        if first != expected or last < first:
            msg = (
                f"stage {stage} of '{text}' is {part} but should begin at layer "
                f"{expected}; every layer belongs to exactly one stage, in order"
            )
            raise WishError(msg)
        counts.append(last - first + 1)
        expected = last + 1
    if expected != num_layers:
        msg = (
            f"'{text}' ends at layer {expected - 1} but the last layer of the model is "
            f"{num_layers - 1}, embedding and head included"
        )
        raise WishError(msg)
    return tuple(counts)


def _range(part: str, text: str) -> tuple[int, int]:
    if match := _RANGE.fullmatch(part):
        return int(match[1]), int(match[2])
    if _COUNT.fullmatch(part):
        return int(part), int(part)
    msg = f"'{part}' in '{text}' is no range of layers; write for example 9-11 or 12"
    raise WishError(msg)
