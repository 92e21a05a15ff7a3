"""What a user asks the solver for, and what is left to it."""

from dataclasses import dataclass
from typing import Literal

from planner.errors import WishError
from planner.model_profile import ModelProfile

RecomputeMode = Literal["auto", "none", "full"]

MIN_MICROBATCHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is fixed; the rest is searched.

    Attributes:
        global_batch_size: Sequences of one step; None for at least 8 and at least
            two per stage microbatches (the bubble of 1F1B is then below a third).
        microbatch_size: Sequences of one microbatch; None to try every profiled
            size that divides the batch.
        schedule: A name, or `auto` to try all.
        recompute: `auto` to recompute where memory asks for it, in `none` of the
            layers, or in all that may be (`full`).
        optimizer: A name, or `auto` for the first of `automatic_optimizers` with which
            something fits.
        layers_per_stage: Number of layers of each stage, embedding and head
            included; None to search.
        num_copies: Of the pipeline, each with its share of the cards and of the batch;
            None to try all numbers.
        keeps_cards: All cards in the order given; else some may be left out or change
            places, unless the cut is given, too.
        time_limit_s: When to stop and say what was found [s].

    Raises:
        WishError: A number that no plan can have.
    """

    global_batch_size: int | None = None
    microbatch_size: int | None = None
    schedule: str = "auto"
    recompute: RecomputeMode = "auto"
    optimizer: str = "auto"
    layers_per_stage: tuple[int, ...] | None = None
    num_copies: int | None = 1
    keeps_cards: bool = False
    time_limit_s: float = 30.0

    def __post_init__(self) -> None:
        for option, size in (
            ("--global-batch-size", self.global_batch_size),
            ("--microbatch-size", self.microbatch_size),
        ):
            if size is not None and size < 1:
                msg = f"{option} {size}: at least one sequence is needed"
                raise WishError(msg)
        if self.num_copies is not None and self.num_copies < 1:
            msg = f"--copies {self.num_copies}: at least one is needed"
            raise WishError(msg)
        if not self.time_limit_s >= 0:
            msg = f"--time-limit {self.time_limit_s:g}: give seconds from 0"
            raise WishError(msg)


def parse_layers_per_stage(text: str) -> tuple[int, ...]:
    """Read `4,3,3,3` (counts) or `0-4,5-8,9-11,12` (ranges of layer indices).

    A list without any dash is counts.

    Args:
        text: As the user wrote it.

    Returns:
        How many layers each stage has.

    Raises:
        WishError: It is neither, or the ranges leave gaps or overlap.
    """
    parts = [part.strip() for part in text.split(",")]
    ends = [part.split("-") for part in parts]
    if not all(len(e) <= 2 and all(n.isdecimal() for n in e) for e in ends):
        msg = (
            f"--layers-per-stage '{text}' cannot be read; write counts such as "
            "4,3,3,3 or ranges such as 0-4,5-8,9-11,12"
        )
        raise WishError(msg)
    if all(len(e) == 1 for e in ends):
        return tuple(int(part) for part in parts)
    counts: list[int] = []
    begin = 0
    for part, end in zip(parts, ends, strict=True):
        first, last = int(end[0]), int(end[-1])
        if first != begin or last < first:
            msg = (
                f"--layers-per-stage: stage {len(counts)} is '{part}' but must begin "
                f"at layer {begin}; every layer belongs to one stage, in order"
            )
            raise WishError(msg)
        counts.append(last - first + 1)
        begin = last + 1
    return tuple(counts)


def batch_size(profile: ModelProfile, num_stages: int, wishes: Wishes) -> int:
    """Sequences of one step.

    Args:
        profile: Whose microbatch size is the base of the default.
        num_stages: How many stages there are.
        wishes: Of the user.

    Returns:
        The wish, or `max(8, 2 * num_stages)` microbatches of the wished or else
        the profile's default size.
    """
    wished = wishes.global_batch_size
    if wished is None:
        base = wishes.microbatch_size or profile.microbatch_size
        return base * max(MIN_MICROBATCHES, 2 * num_stages)
    return wished


def microbatch_sizes(
    profile: ModelProfile, global_batch_size: int, wishes: Wishes
) -> tuple[int, ...]:
    """The microbatch sizes to try.

    Args:
        profile: Which sizes were profiled.
        global_batch_size: Sequences of one step.
        wishes: Of the user.

    Returns:
        Sizes that were profiled and divide the batch, ascending.

    Raises:
        WishError: There is none.
    """
    wished = wishes.microbatch_size
    if wished is not None:
        if global_batch_size % wished:
            msg = (
                f"microbatches of {wished} do not divide the global batch of "
                f"{global_batch_size} sequences; choose --microbatch-size and "
                "--global-batch-size so that they do"
            )
            raise WishError(msg)
        profile.layers_at(wished)
        return (wished,)
    sizes = tuple(s for s in profile.microbatch_sizes if global_batch_size % s == 0)
    if not sizes:
        profiled = ", ".join(map(str, profile.microbatch_sizes))
        msg = (
            f"no profiled microbatch size ({profiled}) divides the global batch of "
            f"{global_batch_size} sequences; change --global-batch-size, or profile "
            "again with another --microbatch-size"
        )
        raise WishError(msg)
    return sizes
