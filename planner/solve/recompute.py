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
from typing import NamedTuple

from planner.memory import kept_bytes, layer_peak_bytes
from planner.solve.setting import Setting

MAX_FRONT = 1024


class Choice(NamedTuple):
    """Which layers of a stage are recomputed, and what that comes to.

    Attributes:
        extra_s: Added to B, at speed 1 [s].
        kept_bytes: Kept from F to B by one microbatch [bytes].
        highest_bytes: Highest level of one microbatch [bytes].
        mask: Bit i is set if layer i of the profile is recomputed.
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

    def layers(self) -> frozenset[int]:
        """Indices of the recomputed layers."""
        return frozenset(i for i in range(self.mask.bit_length()) if self.mask >> i & 1)


class Fronts:
    """The fronts of all runs of layers of one setting, found when asked for.

    Attributes:
        exact: False once a front had to be thinned.
    """

    def __init__(self, setting: Setting) -> None:
        self.exact = True
        self._setting = setting
        self._fronts: dict[int, list[list[Choice]]] = {}

    def front(self, first: int, last: int) -> list[Choice]:
        """Every choice worth considering for a run of layers.

        Args:
            first: Index of the first layer.
            last: Index of the last layer.

        Returns:
            The front, least extra time first; never empty.
        """
        known = self._fronts.setdefault(first, [[Choice(0.0, 0, 0, 0)]])
        while len(known) < last - first + 2:
            grown = self._with_layer(known[-1], first + len(known) - 1)
            if len(grown) > MAX_FRONT:
                self.exact = False
                grown = _thinned(grown)
            known.append(grown)
        return known[last - first + 1]

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

    def _with_layer(self, front: list[Choice], index: int) -> list[Choice]:
        layer = self._setting.layers[index]
        if not self._setting.may_recompute(index):
            options = [False]
        elif self._setting.recompute == "full":
            options = [True]
        else:
            options = [False, True]
        grown = []
        for again in options:
            extra_s = layer.forward_s if again else 0.0
            kept, peak = kept_bytes(layer, again), layer_peak_bytes(layer, again)
            bit = int(again) << index
            for before in front:
                level = before.kept_bytes
                highest = max(before.highest_bytes, level + peak, level + kept)
                grown.append(
                    Choice(
                        before.extra_s + extra_s,
                        level + kept,
                        highest,
                        before.mask | bit,
                    )
                )
        return _undominated(grown)


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


def _thinned(front: list[Choice]) -> list[Choice]:
    """Half of `MAX_FRONT` choices, evenly over time, and the smallest ones."""
    stride = -(-len(front) // (MAX_FRONT // 2))
    smallest = {
        min(front, key=lambda choice: choice.kept_bytes),
        min(front, key=lambda choice: choice.highest_bytes),
    }
    return sorted({*front[::stride], *smallest})
