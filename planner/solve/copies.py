"""Copies of a pipeline: equal cards in equal parts, each with its share of the batch.

    8 cards    1 copy of 8    2 copies of 4    4 copies of 2    8 copies of 1

Copies hold the same, so what a pipeline needs it needs in each; in return it has fewer
stages and a shorter bubble. Once a step each card sums its gradients with those of the
other copies. Only cards that are alike, joined by links that are alike, are parted so.
"""

from collections.abc import Iterator
from dataclasses import replace

from planner.cards import Cluster
from planner.errors import WishError
from planner.solve.wishes import Wishes


def parts_of(cluster: Cluster, num_copies: int) -> tuple[Cluster, ...]:
    """Part a cluster.

    Args:
        cluster: Whose cards are alike if there is more than one copy.
        num_copies: A divisor of their number.

    Returns:
        The cards of each copy, in order.
    """
    size = len(cluster) // num_copies
    if num_copies == 1:
        return (cluster,)
    return tuple(
        replace(
            cluster,
            devices=cluster.devices[begin : begin + size],
            links=cluster.links[:1],
        )
        for begin in range(0, len(cluster), size)
    )


def joined(parts: tuple[Cluster, ...]) -> Cluster:
    """Put the parts of a cluster together again.

    Args:
        parts: Of `parts_of`.

    Returns:
        All cards, in order.
    """
    first = parts[0]
    devices = tuple(device for part in parts for device in part.devices)
    return first if len(parts) == 1 else replace(first, devices=devices)


def copy_counts(cluster: Cluster, batch: int, wishes: Wishes) -> Iterator[int]:
    """How many copies to try.

    Args:
        cluster: All cards.
        batch: Sequences of one step.
        wishes: Of the user.

    Yields:
        Numbers that part cards and batch evenly, ascending.

    Raises:
        WishError: The number that was wished does not.
    """
    wished = wishes.num_copies
    if wished is None and wishes.layers_per_stage is not None:
        wished = 1
    for count in range(1, len(cluster) + 1) if wished is None else (wished,):
        problem = _problem(cluster, batch, count)
        if not problem:
            yield count
        elif wished is not None:
            msg = f"--copies {count}: {problem}"
            raise WishError(msg)


def _problem(cluster: Cluster, batch: int, count: int) -> str:
    """Why there cannot be so many copies; empty if there can."""
    if count == 1:
        return ""
    if len(cluster) % count:
        return f"{len(cluster)} cards are not {count} equal parts"
    if batch % count:
        return f"{count} do not divide the global batch of {batch} sequences"
    alike = {replace(device, name="") for device in cluster.devices}
    if len(alike) > 1:
        return "copies need cards that are alike, and these are not"
    if len(set(cluster.links)) > 1:
        return "copies need links that are alike, and these are not"
    return ""
