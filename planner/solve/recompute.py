"""Which layers of a stage to recompute: the least time that fits.

Walking through a stage, every choice so far is a few numbers: the time it adds to B,
the bytes it keeps, and the highest levels it reached (`planner.memory.Levels`). A
choice that is no better than another in any of them can be dropped, whatever comes
after. What is left is a front, the same for every stage and any number of microbatches
in flight.

Equal layers make equal sums, so a front stays about as long as the stage; layers
that all differ may double it each time. Beyond `MAX_FRONT` it is thinned: the
answer still fits, but is no longer proven to be the quickest.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from planner.memory import Levels, at_boundaries, layer_levels
from planner.model_profile import LayerProfile
from planner.solve.alone import Ints, LevelArrays
from planner.solve.wishes import RecomputeMode

MAX_FRONT = 1024

# What each choice needs [bytes], from its levels.
Need = Callable[[LevelArrays], Ints]


class _Option(NamedTuple):
    """What one layer adds, recomputed or not."""

    extra_s: float
    levels: Levels
    again: bool


class Choice(NamedTuple):
    """Which layers of a stage are recomputed, and what that comes to.

    Attributes:
        extra_s: Added to B, at speed 1 [s].
        levels: Of one microbatch.
        mask: Bit i is set if layer i of the stage is recomputed.
    """

    extra_s: float
    levels: Levels
    mask: int

    def followed_by(self, option: _Option, position: int) -> "Choice":
        """The choice for one more layer.

        Args:
            option: What that layer adds.
            position: Of that layer in the stage.

        Returns:
            The longer choice.
        """
        return Choice(
            self.extra_s + option.extra_s,
            self.levels.followed_by(option.levels),
            self.mask | option.again << position,
        )

    def layers(self, first: int) -> frozenset[int]:
        """Which layers of the profile are recomputed.

        Args:
            first: Index of the stage's first layer in the profile.

        Returns:
            Their indices in the profile.
        """
        bits = range(self.mask.bit_length())
        return frozenset(first + i for i in bits if self.mask >> i & 1)


class Front:
    """The choices of one stage that are worth considering.

    Args:
        choices: Least extra time first.
    """

    def __init__(self, choices: Sequence[Choice]) -> None:
        self.choices = tuple(choices)

    def __len__(self) -> int:
        return len(self.choices)

    @cached_property
    def levels(self) -> LevelArrays:
        """Of every choice."""
        return LevelArrays.of([choice.levels for choice in self.choices])


class Fronts:
    """The fronts of all runs of layers of one model, found when asked for.

    Runs of equal layers share one front: what a run is, is a tuple of kinds, and
    masks count from its first layer. The first and the last layer of a stage differ
    from those between, see `planner.memory.boundary`.

    Args:
        layers: Of the model, at one microbatch size.
        mode: Which of them may be, or must be, recomputed.
        gradient_bytes: Of one parameter's gradient [bytes].

    Attributes:
        exact: False once a front had to be thinned.
    """

    def __init__(
        self,
        layers: Sequence[LayerProfile],
        mode: RecomputeMode,
        gradient_bytes: int = 0,
    ) -> None:
        self.exact = True
        self._layers = tuple(layers)
        self._mode = mode
        self._gradient_bytes = gradient_bytes
        self._options: list[tuple[_Option, ...]] = []
        self._kinds: dict[tuple[int, bool, bool], int] = {}
        self._fronts: dict[tuple[int, ...], Front] = {
            (): Front([Choice(0.0, Levels(), 0)])
        }

    def front(self, first: int, last: int) -> Front:
        """Every choice worth considering for a run of layers.

        Args:
            first: Index of the first layer.
            last: Index of the last layer.

        Returns:
            The front, least extra time first; never empty.
        """
        return self._front(self.run(first, last))

    def run(self, first: int, last: int) -> tuple[int, ...]:
        """What a run of layers is; equal ones have the same front.

        Args:
            first: Index of the first layer.
            last: Index of the last layer.

        Returns:
            A kind for each layer.
        """
        return tuple(
            self._kind(i, i == first, i == last) for i in range(first, last + 1)
        )

    def cheapest(
        self, first: int, last: int, need: Need, room_bytes: int
    ) -> Choice | None:
        """The choice that fits and adds least time.

        Args:
            first: Index of the first layer.
            last: Index of the last layer.
            need: Tells what each choice needs.
            room_bytes: What there is [bytes].

        Returns:
            The choice, or None if nothing fits.
        """
        front = self.front(first, last)
        fitting = np.flatnonzero(need(front.levels) <= room_bytes)
        return front.choices[fitting[0]] if len(fitting) else None

    def leanest(self, first: int, last: int, need: Need) -> Choice:
        """The choice that needs least memory.

        Args:
            first: Index of the first layer.
            last: Index of the last layer.
            need: Tells what each choice needs.

        Returns:
            The choice.
        """
        front = self.front(first, last)
        return front.choices[need(front.levels).argmin()]

    def _kind(self, index: int, begins: bool, ends: bool) -> int:
        key = (index, begins, ends)
        if key not in self._kinds:
            layers, last = self._layers, len(self._layers) - 1
            (layer,) = at_boundaries(
                [layers[index]],
                layers[index - 1].output_bytes if begins and index else 0,
                layers[index].output_bytes if ends and index < last else 0,
            )
            mode = self._mode if 0 < index < last else "none"
            options = _options(layer, mode, self._gradient_bytes)
            if options not in self._options:
                self._options.append(options)
            self._kinds[key] = self._options.index(options)
        return self._kinds[key]

    def _front(self, run: tuple[int, ...]) -> Front:
        known = len(run)
        while run[:known] not in self._fronts:
            known -= 1
        for position in range(known, len(run)):
            grown = [
                before.followed_by(option, position)
                for option in self._options[run[position]]
                for before in self._fronts[run[:position]].choices
            ]
            front = _undominated(grown)
            if len(front) > MAX_FRONT:
                self.exact = False
                front = thinned(front, MAX_FRONT // 2)
            self._fronts[run[: position + 1]] = Front(front)
        return self._fronts[run]


@lru_cache(maxsize=16)
def fronts_of(
    layers: tuple[LayerProfile, ...], mode: RecomputeMode, gradient_bytes: int
) -> Fronts:
    """The fronts of a model, shared by all settings with the same layers.

    Args:
        layers: Of the model, at one microbatch size.
        mode: Which of them may be, or must be, recomputed.
        gradient_bytes: Of one parameter's gradient [bytes].

    Returns:
        The fronts.
    """
    return Fronts(layers, mode, gradient_bytes)


def _options(
    layer: LayerProfile, mode: RecomputeMode, gradient_bytes: int
) -> tuple[_Option, ...]:
    flags = {"none": (False,), "full": (True,), "auto": (False, True)}[mode]
    return tuple(
        _Option(
            layer.again_s if again else 0.0,
            layer_levels(layer, again, gradient_bytes),
            again,
        )
        for again in flags
    )


def _undominated(choices: Sequence[Choice]) -> list[Choice]:
    """Drop what is no better than another in time, kept bytes and levels."""
    ranked = sorted(choices)
    levels = np.array([choice.levels for choice in ranked], dtype=np.int64)
    front: list[int] = []
    for place, own in enumerate(levels):
        if not (levels[front] <= own).all(axis=1).any():
            front.append(place)
    return [ranked[place] for place in front]


def thinned(front: Sequence[Choice], count: int) -> list[Choice]:
    """Some choices of a front, evenly over time, and the smallest ones.

    Args:
        front: Least extra time first.
        count: About how many to keep, at least 2.

    Returns:
        At most two more than that, least extra time first.
    """
    stride = -(-len(front) // count)
    smallest = {
        min(front, key=lambda choice: choice.levels.kept_bytes),
        min(front, key=lambda choice: choice.levels.backward_bytes),
    }
    return sorted({*front[::stride], *smallest})
