"""Which layers of a stage to recompute: the least time that fits.

Walking through a stage, every choice so far is three numbers: the time it adds
to B, the bytes it keeps, and the highest level it reached. A choice that is no
better than another in any of them can be dropped, whatever comes after. What is
left is a front, the same for every stage and any number of microbatches in
flight: with k of them a choice needs `(k - 1) * kept + highest`.

Equal layers make equal sums, so a front stays about as long as the stage; layers
that all differ may double it each time. Beyond `MAX_FRONT` it is thinned: the
answer still fits, but is no longer proven to be the quickest.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from planner.memory import kept_bytes, layer_peak_bytes
from planner.model_profile import LayerProfile
from planner.solve.wishes import RecomputeMode

MAX_FRONT = 1024


class _Option(NamedTuple):
    """What one layer adds, recomputed or not."""

    extra_s: float
    kept_bytes: int
    peak_bytes: int
    again: bool


class Choice(NamedTuple):
    """Which layers of a stage are recomputed, and what that comes to.

    Attributes:
        extra_s: Added to B, at speed 1 [s].
        kept_bytes: Kept from F to B by one microbatch [bytes].
        highest_bytes: Highest level of one microbatch [bytes].
        mask: Bit i is set if layer i of the stage is recomputed.
    """

    extra_s: float
    kept_bytes: int
    highest_bytes: int
    mask: int

    def needed_bytes(self, num_in_flight: int) -> int:
        """Activations and workspace [bytes].

        Args:
            num_in_flight: Most microbatches held at once.

        Returns:
            The level at the fullest moment.
        """
        return (num_in_flight - 1) * self.kept_bytes + self.highest_bytes

    def followed_by(self, option: _Option, position: int) -> "Choice":
        """The choice for one more layer.

        Args:
            option: What that layer adds.
            position: Of that layer in the stage.

        Returns:
            The longer choice.
        """
        level = self.kept_bytes
        return Choice(
            self.extra_s + option.extra_s,
            level + option.kept_bytes,
            max(self.highest_bytes, level + option.peak_bytes),
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


_NOTHING = Choice(0.0, 0, 0, 0)


class Fronts:
    """The fronts of all runs of layers of one model, found when asked for.

    Runs of equal layers share one front: what a run is, is a tuple of kinds, and
    masks count from its first layer.

    Attributes:
        exact: False once a front had to be thinned.
    """

    def __init__(self, layers: Sequence[LayerProfile], mode: RecomputeMode) -> None:
        self.exact = True
        self._options: list[tuple[_Option, ...]] = []
        self._kinds: list[int] = []
        for index, layer in enumerate(layers):
            inside = 0 < index < len(layers) - 1
            options = _options(layer, mode if inside else "none")
            if options not in self._options:
                self._options.append(options)
            self._kinds.append(self._options.index(options))
        self._fronts: dict[tuple[int, ...], list[Choice]] = {(): [_NOTHING]}
        self._leanest: dict[tuple[tuple[int, ...], int], Choice] = {}

    def front(self, first: int, last: int) -> list[Choice]:
        """Every choice worth considering for a run of layers.

        Args:
            first: Index of the first layer.
            last: Index of the last layer.

        Returns:
            The front, least extra time first; never empty.
        """
        return self._front(tuple(self._kinds[first : last + 1]))

    def cheapest(
        self, first: int, last: int, num_in_flight: int, room_bytes: int
    ) -> Choice | None:
        """The choice that fits and adds least time.

        Args:
            first: Index of the first layer.
            last: Index of the last layer.
            num_in_flight: Most microbatches held at once.
            room_bytes: For activations and workspace [bytes].

        Returns:
            The choice, or None if nothing fits.
        """
        for choice in self.front(first, last):
            if choice.needed_bytes(num_in_flight) <= room_bytes:
                return choice
        return None

    def leanest(self, first: int, last: int, num_in_flight: int) -> Choice:
        """The choice that needs least memory.

        Args:
            first: Index of the first layer.
            last: Index of the last layer.
            num_in_flight: Most microbatches held at once.

        Returns:
            The choice.
        """
        run = tuple(self._kinds[first : last + 1])
        if (run, num_in_flight) not in self._leanest:
            self._leanest[run, num_in_flight] = min(
                self._front(run), key=lambda choice: choice.needed_bytes(num_in_flight)
            )
        return self._leanest[run, num_in_flight]

    def _front(self, run: tuple[int, ...]) -> list[Choice]:
        known = len(run)
        while run[:known] not in self._fronts:
            known -= 1
        for position in range(known, len(run)):
            grown = [
                before.followed_by(option, position)
                for option in self._options[run[position]]
                for before in self._fronts[run[:position]]
            ]
            front = _undominated(grown)
            if len(front) > MAX_FRONT:
                self.exact = False
                front = thinned(front, MAX_FRONT // 2)
            self._fronts[run[: position + 1]] = front
        return self._fronts[run]


@lru_cache(maxsize=16)
def fronts_of(layers: tuple[LayerProfile, ...], mode: RecomputeMode) -> Fronts:
    """The fronts of a model, shared by all settings with the same layers.

    Args:
        layers: Of the model, at one microbatch size.
        mode: Which of them may be, or must be, recomputed.

    Returns:
        The fronts.
    """
    return Fronts(layers, mode)


def _options(layer: LayerProfile, mode: RecomputeMode) -> tuple[_Option, ...]:
    flags = {"none": (False,), "full": (True,), "auto": (False, True)}[mode]
    return tuple(
        _Option(
            layer.again_s if again else 0.0,
            kept_bytes(layer, again),
            max(layer_peak_bytes(layer, again), kept_bytes(layer, again)),
            again,
        )
        for again in flags
    )


def _undominated(choices: list[Choice]) -> list[Choice]:
    """Drop what is no better than another in time, kept bytes and level.

    Going by rising time, the (kept, highest) pairs seen so far form a staircase:
    sorted by rising kept bytes, highest falls.
    """
    front: list[Choice] = []
    stair_kept: list[int] = []
    stair_highest: list[int] = []
    for choice in sorted(choices):
        _, kept, highest, _ = choice
        at = bisect_right(stair_kept, kept)
        if at and stair_highest[at - 1] <= highest:
            continue
        begin = end = bisect_left(stair_kept, kept)
        while end < len(stair_kept) and stair_highest[end] >= highest:
            end += 1
        stair_kept[begin:end] = [kept]
        stair_highest[begin:end] = [highest]
        front.append(choice)
    return front


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
        min(front, key=lambda choice: choice.kept_bytes),
        min(front, key=lambda choice: choice.highest_bytes),
    }
    return sorted({*front[::stride], *smallest})
