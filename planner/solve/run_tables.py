"""Memory of every run of layers of one setting, as arrays.

Tables are indexed [first, last] layer, or by either of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.memory import (
    Levels,
    at_boundaries,
    layer_levels,
    layer_step_bytes,
    receive_buffer_bytes,
    shared_parameters,
    stage_bytes,
)
from planner.solve.alone import Boundaries, Ints, LevelArrays
from planner.solve.setting import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastNeeds:
    """What one microbatch needs at least, whatever is recomputed.

    Attributes:
        kept_bytes: From F to B or I without recompute [first, last], in bytes.
        least_kept_bytes: With the most recompute [first, last], in bytes.
        held_bytes: From I to W [first, last], in bytes.
        rise_bytes: In B or I of the last layer [last], in bytes.
    """

    kept_bytes: Ints
    least_kept_bytes: Ints
    held_bytes: Ints
    rise_bytes: Ints


class RunTables:
    """What stages of any run of layers take.

    Args:
        setting: Layers, optimizer and microbatches.

    Attributes:
        parameters: Of every run [first, last].
        gradients_bytes: The same for their gradients [first, last], in bytes.
        input_bytes: Taken for one microbatch [first], in bytes.
        output_bytes: Made for one microbatch [last], in bytes.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        places = range(len(setting.layers))
        self.parameters = _parameters(setting)
        self.gradients_bytes = self.parameters * setting.optimizer.gradient_bytes
        self.input_bytes = np.array([setting.input_bytes(i) for i in places])
        self.output_bytes = np.array([setting.output_bytes(i) for i in places])

    @cached_property
    def static_bytes(self) -> Ints:
        """Weights, states and receive buffers [stage, first, last], in bytes."""
        setting = self._setting
        state = self.parameters * setting.optimizer.lasting_bytes
        received, sent = self.input_bytes[:, None], self.output_bytes[None, :]
        # One byte a microbatch, for whatever crosses.
        each = receive_buffer_bytes(
            num_microbatches=setting.num_microbatches, input_bytes=1, output_bytes=0
        )
        return np.stack(
            [
                state
                + each * setting.crosses_before(stage) * received
                + each * setting.crosses_after(stage) * sent
                for stage in range(setting.num_stages)
            ]
        )

    @cached_property
    def all_around(self) -> Boundaries:
        """What every run takes besides its levels [first, last]."""
        shape = self.parameters.shape
        return Boundaries(
            input_bytes=np.broadcast_to(self.input_bytes[:, None], shape),
            output_bytes=np.broadcast_to(self.output_bytes[None, :], shape),
            gradients_bytes=self.gradients_bytes,
            step_bytes=self._step_bytes,
        )

    def around(self, first: int, last: int) -> Boundaries:
        """What one run takes besides its levels.

        Args:
            first: Index of its first layer.
            last: Index of its last layer.

        Returns:
            Numbers.
        """
        return Boundaries(
            input_bytes=int(self.input_bytes[first]),
            output_bytes=int(self.output_bytes[last]),
            gradients_bytes=int(self.gradients_bytes[first, last]),
            step_bytes=int(self._step_bytes[first, last]),
        )

    def levels(self, full: bool) -> LevelArrays:
        """Levels of every run with all or none of its layers recomputed.

        Args:
            full: All that may be; else none.

        Returns:
            Arrays [first, last].
        """
        count = len(self.parameters)
        found = np.zeros((count, count, len(Levels._fields)), dtype=np.int64)
        inner, begins, ends, both = (
            [self._levels(i, full, *sides) for i in range(count)]
            for sides in ((False, False), (True, False), (False, True), (True, True))
        )
        for first in range(count):
            found[first, first] = both[first]
            before = begins[first]
            for last in range(first + 1, count):
                found[first, last] = before.followed_by(ends[last])
                before = before.followed_by(inner[last])
        return LevelArrays.of(found)

    def extra_s(self, full: bool) -> NDArray[np.float64]:
        """What recompute of all or none of the layers adds to B.

        Args:
            full: All that may be; else none.

        Returns:
            At speed 1 [first, last], in s.
        """
        layers, may = self._setting.layers, self._setting.may_recompute
        return run_sums(
            [x.again_s if full and may(i) else 0.0 for i, x in enumerate(layers)]
        )

    @cached_property
    def least(self) -> LeastNeeds:
        """Lower bounds over all recompute choices."""
        count = len(self.parameters)
        inner, begins, ends, both = (
            np.array([self._least(i, *sides) for i in range(count)]).T
            for sides in ((False, False), (True, False), (False, True), (True, True))
        )
        sums = []
        for place in range(3):
            total = run_sums(inner[place])
            total += (begins[place] - inner[place])[:, None]
            total += (ends[place] - inner[place])[None, :]
            np.fill_diagonal(total, both[place])
            sums.append(np.maximum(total, 0).astype(np.int64))
        return LeastNeeds(
            kept_bytes=sums[0],
            least_kept_bytes=sums[1],
            held_bytes=sums[2],
            rise_bytes=np.minimum(ends[3], both[3]),
        )

    @cached_property
    def _step_bytes(self) -> Ints:
        """As `step_peak_bytes` of every run [first, last]."""
        layers, spec = self._setting.layers, self._setting.optimizer
        count = len(layers)
        needed = np.array([layer_step_bytes(x, spec) for x in layers], dtype=np.int64)
        gradients = [x.num_parameters * spec.gradient_bytes for x in layers]
        dropped = np.cumsum([0, *gradients[:-1]], dtype=np.int64)
        peaks = np.zeros((count, count), dtype=np.int64)
        for first in range(count):
            above = np.maximum.accumulate(needed[first:] - dropped[first:])
            peaks[first, first:] = np.maximum(above + dropped[first], 0)
        return peaks

    def _levels(self, index: int, full: bool, begins: bool, ends: bool) -> Levels:
        setting = self._setting
        sides = self._sides(index, begins, ends)
        (layer,) = at_boundaries([setting.layers[index]], *sides)
        again = full and setting.may_recompute(index)
        return layer_levels(layer, again, setting.optimizer.gradient_bytes)

    def _sides(self, index: int, begins: bool, ends: bool) -> tuple[int, int]:
        """What a layer takes and makes at the boundaries of its stage."""
        return (
            int(self.input_bytes[index]) if begins else 0,
            int(self.output_bytes[index]) if ends else 0,
        )

    def _least(self, index: int, begins: bool, ends: bool) -> tuple[int, int, int, int]:
        """One layer: kept, least kept, least held, least rise of B or I."""
        setting = self._setting
        choices = (False, True) if setting.may_recompute(index) else (False,)
        if setting.recompute == "full":
            choices = choices[-1:]
        received, made = self._sides(index, begins, ends)
        alone = [
            stage_bytes(
                [setting.layers[index]],
                recomputed=[again],
                num_parameters=0,
                optimizer=setting.optimizer,
                input_bytes=received,
                output_bytes=made,
                is_first=False,
            )
            for again in choices
        ]
        return (
            alone[0].kept_bytes,
            min(own.kept_bytes for own in alone),
            # The first stage holds what it kept.
            min(min(own.held_bytes, own.kept_bytes) for own in alone),
            min(
                min(own.backward_peak_bytes, own.input_grad_peak_bytes) for own in alone
            ),
        )


def run_sums(values: Sequence[float] | NDArray[np.int64]) -> NDArray[np.float64]:
    """Sum of every run of layers.

    Args:
        values: One a layer, at least 0.

    Returns:
        The sums [first, last]; 0 where last < first.
    """
    ends = np.concatenate([[0.0], np.cumsum(values)])
    sums: NDArray[np.float64] = np.maximum(ends[None, 1:] - ends[:-1, None], 0.0)
    return sums


def _parameters(setting: Setting) -> Ints:
    """Parameters of every run of layers [first, last]."""
    layers = setting.layers
    ends = np.concatenate(
        [[0], np.cumsum([layer.num_parameters for layer in layers], dtype=np.int64)]
    )
    parameters: Ints = ends[None, 1:] - ends[:-1, None]
    tied = {name for pair in setting.profile.ties for name in pair}
    places = [i for i, layer in enumerate(layers) if layer.name in tied]
    if not places:
        return parameters
    # What is shared depends only on which tied layers a run holds.
    for first in range(places[-1] + 1):
        for last in range(max(first, places[0]), len(layers)):
            inside = [layers[i] for i in places if first <= i <= last]
            if len(inside) > 1:
                shared = shared_parameters(inside, setting.profile.ties)
                parameters[first, last] -= shared
    return parameters
