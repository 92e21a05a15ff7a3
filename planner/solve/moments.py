"""How many microbatches a device holds while something runs.

One row of actions fixes which microbatches each stage of the device holds at any
time, whatever the layers are. Memory only grows with them, so of all moments the
ones that hold no less than any other are enough: each is a linear form in what the
stages keep,

    sum over stages of held * kept  +  highest level of the stage that runs

and the peak of a device is the largest of them. With one stage a device under
1F1B or GPipe there is a single moment, `num_in_flight - 1` held and one running.

Known limitations: a split backward is taken to keep all until W.
"""

from collections.abc import Sequence
from typing import NamedTuple

from planner.schedule.actions import Action


class Moment(NamedTuple):
    """One moment of a device.

    Attributes:
        running: Which of the device's stages runs, by position.
        held: Microbatches that each of its stages holds beside the one that runs.
    """

    running: int
    held: tuple[int, ...]


def fullest_moments(row: Sequence[Action], stages: Sequence[int]) -> tuple[Moment, ...]:
    """The moments of a device that can be its fullest.

    Args:
        row: Actions of the device, in order.
        stages: The stages it works on, in the order wanted.

    Returns:
        Different moments, none of which holds less than another with the same
        stage running.
    """
    place = {stage: position for position, stage in enumerate(stages)}
    held = [0] * len(stages)
    seen: dict[Moment, None] = {}
    for action in row:
        running = place[action.stage]
        if action.kind != "F":
            held[running] -= 1
        seen[Moment(running, tuple(held))] = None
        if action.kind in ("F", "I"):
            held[running] += 1
    return tuple(
        moment
        for moment in seen
        if not any(_covers(other, moment) for other in seen if other != moment)
    )


def _covers(larger: Moment, smaller: Moment) -> bool:
    return larger.running == smaller.running and all(
        a >= b for a, b in zip(larger.held, smaller.held, strict=True)
    )
