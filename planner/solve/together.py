"""Which layers to recompute where the stages of a device share its memory.

What fits is told by the moments of the device that can be its fullest
(`planner.memory.peak_states`): each is a sum of products of what its stages keep,
hold and need, so all combinations of the choices of all stages are judged at once.

Known limitations: fronts (`recompute`) know nothing of what is held from I to W;
of two choices that differ in that only one is tried.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.memory import PeakStates, StageBytes
from planner.solve.candidate import bytes_of
from planner.solve.recompute import Fronts, thinned
from planner.solve.setting import Setting

# Of the choices of the stages of one device.
_MOST_COMBINATIONS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The recompute choices of one stage, least extra time first.

    Attributes:
        layers: Recomputed layers of each choice.
        extra_s: Added to B at speed 1 [choice], in s.
        terms: What the factors of a state are multiplied with, see `PeakStates.terms`
            [choice, term], in bytes.
        complete: Whether none was left out.
    """

    layers: tuple[frozenset[int], ...]
    extra_s: NDArray[np.float64]
    terms: NDArray[np.float64]
    complete: bool


def longest_front(num_stages: int) -> int:
    """How many choices of a stage are combined with those of others.

    Args:
        num_stages: Of one device.

    Returns:
        The number; longer fronts are thinned.
    """
    return max(int(_MOST_COMBINATIONS ** (1 / num_stages)), 2)


def choices_of(
    setting: Setting,
    fronts: Fronts,
    stage: int,
    layers: tuple[int, int],
    num_parameters: int,
) -> Choices:
    """The choices of one stage, with their memory.

    Args:
        setting: All that is decided outside the cut.
        fronts: Of its layers.
        stage: From 0.
        layers: Its first and its last.
        num_parameters: That count with it.

    Returns:
        At most about `longest_front` of them.
    """
    front = fronts.front(*layers)
    longest = longest_front(setting.stages_per_device)
    complete = len(front) <= longest
    kept = front.choices if complete else thinned(front.choices, longest)
    recomputed = tuple(choice.layers(layers[0]) for choice in kept)
    memory = [
        bytes_of(setting, stage, layers, again, num_parameters) for again in recomputed
    ]
    # Of its neighbours on the device only their boundary counts.
    around = {}
    if stage > 0 and not setting.crosses_before(stage):
        around[stage - 1] = StageBytes(output_bytes=setting.input_bytes(layers[0]))
    if stage < setting.num_stages - 1 and not setting.crosses_after(stage):
        around[stage + 1] = StageBytes()
    alone = PeakStates(stages=(stage,), states=(), num_microbatches=1)
    return Choices(
        layers=recomputed,
        extra_s=np.array([choice.extra_s for choice in kept]),
        terms=np.array(
            [alone.terms({**around, stage: own}) for own in memory], dtype=np.float64
        ),
        complete=complete,
    )


def cheapest_together(
    choices: Sequence[Choices], states: PeakStates, room_bytes: int
) -> tuple[frozenset[int], ...] | None:
    """Choices for the stages of one device that fit together and add least time.

    Every microbatch passes every stage once, so their extra times add up.

    Args:
        choices: Per stage of the device, in order.
        states: Of the device.
        room_bytes: Beside the weights, states and buffers of all stages [bytes].

    Returns:
        Recomputed layers of each stage, or None if nothing fits.
    """
    grids = np.meshgrid(*(np.arange(len(c.layers)) for c in choices), indexing="ij")
    picks = [grid.ravel() for grid in grids]
    pairs = list(zip(choices, picks, strict=True))
    terms = np.concatenate([own.terms[pick] for own, pick in pairs], axis=1)
    needed = (terms @ np.array(states.states, dtype=np.float64).T).max(axis=1)
    extra_s = np.sum([own.extra_s[pick] for own, pick in pairs], axis=0)
    fitting = np.flatnonzero(needed <= room_bytes)
    if not len(fitting):
        return None
    best = fitting[extra_s[fitting].argmin()]
    return tuple(own.layers[pick[best]] for own, pick in pairs)
