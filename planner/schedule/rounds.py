"""Microbatches in rounds, for devices with several stages.

A device takes a round of microbatches through its first stage, then through its
second and so on, before the next round starts. A round has as many microbatches
as there are devices, or a few more if they cannot be divided otherwise: the first
of them is back at the device when the last has left it. Source: Narayanan et al.,
"Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM".
"""

from collections.abc import Iterable

from planner.schedule.actions import Action, Kind


def round_size(num_devices: int, num_microbatches: int) -> int:
    """How many microbatches make a round.

    Args:
        num_devices: At least 1.
        num_microbatches: Of one step, at least 1.

    Returns:
        All of them if there are fewer than two for each device.
    """
    return num_microbatches // _num_rounds(num_devices, num_microbatches)


def in_rounds(
    kind: Kind, stages: Iterable[int], num_microbatches: int, size: int
) -> list[Action]:
    """The actions of one kind, round by round.

    Args:
        kind: Of all of them.
        stages: In the order in which a round goes through them.
        num_microbatches: Of one step.
        size: Microbatches of a round; the last one may be smaller.

    Returns:
        One action for every stage and microbatch.
    """
    on_device = tuple(stages)
    return [
        Action(stage, kind, microbatch)
        for begin in range(0, num_microbatches, size)
        for stage in on_device
        for microbatch in range(begin, min(begin + size, num_microbatches))
    ]


def rounds_problem(num_devices: int, num_microbatches: int) -> str:
    """Why the microbatches cannot be divided into rounds.

    Args:
        num_devices: At least 1.
        num_microbatches: Of one step, at least 1.

    Returns:
        What is needed instead; empty if they can.
    """
    rounds = _num_rounds(num_devices, num_microbatches)
    if num_microbatches % rounds == 0:
        return ""
    fewer = num_microbatches - num_microbatches % num_devices
    return (
        f"cannot divide {num_microbatches} microbatches into {rounds} equal rounds; "
        f"use {fewer} or {fewer + num_devices} microbatches"
    )


def _num_rounds(num_devices: int, num_microbatches: int) -> int:
    return max(num_microbatches // num_devices, 1)
