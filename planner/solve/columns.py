"""All columns of one setting as arrays: a column is (stage, first, last layer).

Each column has its times and, if it can fit its card, its recompute choice:
with fixed layers, schedule and card, the choice that adds least time and fits is
the only one worth having, because no action that takes longer ever makes a step
shorter. So the cut is all that is left to search.

Tables are indexed [stage, first, last] or [first, last]; entries with
last < first are never used. `Columns` lists the entries that are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from planner.memory import parameters_of_stages
from planner.solve.alone import Ints, LevelArrays, needed_bytes
from planner.solve.paths import PARTS
from planner.solve.recompute import Choice, Need, fronts_of
from planner.solve.run_tables import RunTables, run_sums
from planner.solve.setting import Cut, Recompute, Setting
from planner.solve.together import Choices, cheapest_together, choices_of

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Columns that may be used, one entry each, sorted by stage, last, first.

    Attributes:
        stage: Stage number.
        first: Index of its first layer.
        last: Index of its last layer.
        times_s: Of its actions and transfers for one microbatch [part, column], in
            the order of `paths.PARTS`, recompute included [s].
        optimizer_s: Optimizer step, and summing gradients over the copies [s].
        static_bytes: Weights, states and buffers [bytes].
        gradients_bytes: Gradients of the parameters [bytes].
        input_bytes: Taken for one microbatch [bytes].
        output_bytes: Made for one microbatch [bytes].
        kept_bytes: What one microbatch leaves without recompute [bytes].
        least_kept_bytes: What it leaves with the most recompute [bytes].
        held_bytes: What it leaves from I to W at least [bytes].
        rise_bytes: What B or I need on top at least [bytes].
    """

    stage: Ints
    first: Ints
    last: Ints
    times_s: Floats
    optimizer_s: Floats
    static_bytes: Ints
    gradients_bytes: Ints
    input_bytes: Ints
    output_bytes: Ints
    kept_bytes: Ints
    least_kept_bytes: Ints
    held_bytes: Ints
    rise_bytes: Ints

    def __len__(self) -> int:
        return len(self.stage)

    def where(self, keep: Flags | Ints | list[int]) -> Self:
        """Some of the columns.

        Args:
            keep: One flag a column, or rising positions.

        Returns:
            Those with a flag or at these positions, in the same order.
        """
        parts = {
            field.name: getattr(self, field.name)[..., keep] for field in fields(self)
        }
        return type(self)(**parts)


class ColumnTables:
    """What the columns of one setting are computed from.

    Attributes:
        setting: All that is decided outside the cut.
        fronts: Recompute choices by run of layers.
        legal: Columns that respect order and uncuttable layers.
        room_bytes: What each leaves beside weights, states and buffers [bytes].
        tries_all: False once choices of the stages of one device were thinned.
    """

    def __init__(
        self, setting: Setting, layers_per_stage: Sequence[int] | None = None
    ) -> None:
        self.setting = setting
        self.tries_all = True
        self.fronts = fronts_of(
            setting.layers, setting.recompute, setting.optimizer.gradient_bytes
        )
        self.legal = _legal(setting, layers_per_stage)
        self._runs = RunTables(setting)
        self._static_bytes = self._runs.static_bytes
        budgets = [setting.device(s).budget_bytes for s in range(setting.num_stages)]
        self._limits = np.array(budgets, dtype=np.int64)[:, None, None]
        self.room_bytes = self._limits - self._static_bytes
        self._choices: dict[tuple[int, tuple[int, int], int], Choices] = {}
        self._all_or_none: dict[bool, tuple[Floats, Ints]] = {}
        self._leanest: dict[tuple[object, ...], Choice] = {}
        self._of_device: dict[
            tuple[object, ...], tuple[frozenset[int], ...] | None
        ] = {}

    def without_choice(self, *, full: bool) -> Columns:
        """Columns in which all or none of the layers are recomputed.

        Args:
            full: All that may be; else none.

        Returns:
            The columns that fit so.
        """
        extra_s, needed = self.all_or_none(full)
        allowed = self.legal & (needed <= self.room_bytes)
        return self._columns(allowed, np.broadcast_to(extra_s, allowed.shape))

    def quick(self) -> Columns:
        """Columns with no recompute where that fits, else with full recompute.

        Returns:
            The columns that fit.
        """
        none_s, none_needed = self.all_or_none(False)
        without = none_needed <= self.room_bytes
        if np.all(without | ~self.legal):
            return self.without_choice(full=False)
        full_s, full_needed = self.all_or_none(True)
        allowed = self.legal & (without | (full_needed <= self.room_bytes))
        return self._columns(allowed, np.where(without, none_s, full_s))

    def optimistic(self) -> Columns:
        """Columns without recompute that may fit with some; times only too low.

        Returns:
            A superset of the columns that fit.
        """
        allowed = self.legal & (self.room_bytes >= self._runs.gradients_bytes)
        return self._columns(allowed, np.zeros(allowed.shape))

    def exact(self, among: Columns) -> Columns:
        """Columns with the recompute choice that fits and adds least time.

        Args:
            among: Columns to look at; the others are ruled out.

        Returns:
            The columns that fit.
        """
        extra_s = np.zeros(self.legal.shape)
        fits = np.zeros_like(self.legal)
        _, needed = self.all_or_none(False)
        without = needed <= self.room_bytes
        where = zip(
            among.stage.tolist(), among.first.tolist(), among.last.tolist(), strict=True
        )
        for stage, first, last in where:
            if without[stage, first, last]:
                fits[stage, first, last] = True
            elif (choice := self.choice(stage, first, last)) is not None:
                fits[stage, first, last] = True
                extra_s[stage, first, last] = choice.extra_s
        return self._columns(fits, extra_s)

    def choice(self, stage: int, first: int, last: int) -> Choice | None:
        """The recompute choice of one column.

        Args:
            stage: From 0.
            first: Index of its first layer.
            last: Index of its last layer.

        Returns:
            The one that fits and adds least time; None if none fits.
        """
        room_bytes = int(self.room_bytes[stage, first, last])
        need = self._need(stage, first, last)
        return self.fronts.cheapest(first, last, need, room_bytes)

    def leanest(self, stage: int, first: int, last: int) -> Choice:
        """The recompute choice of one column that needs least memory.

        Args:
            stage: From 0.
            first: Index of its first layer.
            last: Index of its last layer.

        Returns:
            The choice, whether it fits or not.
        """
        around = self._runs.around(first, last)
        key = (stage, self.fronts.run(first, last), around)
        if key not in self._leanest:
            need = self._need(stage, first, last)
            self._leanest[key] = self.fronts.leanest(first, last, need)
        return self._leanest[key]

    def _need(self, stage: int, first: int, last: int) -> Need:
        states = self.setting.states_alone[stage]
        around = self._runs.around(first, last)
        return lambda levels: needed_bytes(states, levels, around)

    def recompute_of(self, cut: Cut) -> Recompute | None:
        """The recompute choice of every stage of a cut.

        Args:
            cut: First and last layer of every stage.

        Returns:
            Recomputed layers of every stage; None if a device is too small.
        """
        chosen: list[frozenset[int]] = [frozenset()] * len(cut)
        for device, stages in enumerate(self.setting.stages_of):
            runs = [cut[stage] for stage in stages]
            key = (device, *runs)
            if key not in self._of_device:
                self._of_device[key] = (
                    self._together(device, runs)
                    if self.setting.is_coupled
                    else self._alone(stages[0], runs[0])
                )
            found = self._of_device[key]
            if found is None:
                return None
            for stage, layers in zip(stages, found, strict=True):
                chosen[stage] = layers
        return tuple(chosen)

    def _alone(
        self, stage: int, run: tuple[int, int]
    ) -> tuple[frozenset[int], ...] | None:
        choice = self.choice(stage, *run)
        return None if choice is None else (choice.layers(run[0]),)

    def _together(
        self, device: int, runs: list[tuple[int, int]]
    ) -> tuple[frozenset[int], ...] | None:
        """The choices that fit a device together and add least time."""
        setting = self.setting
        stages = setting.stages_of[device]
        room_bytes = setting.cluster.devices[device].budget_bytes
        layers = [setting.layers[first : last + 1] for first, last in runs]
        # Of what is tied within a device, only the first stage counts.
        counts = parameters_of_stages(layers, setting.profile.ties)
        choices = []
        for stage, run, count in zip(stages, runs, counts, strict=True):
            shared = int(self._runs.parameters[run]) - count
            room_bytes += shared * setting.optimizer.lasting_bytes
            room_bytes -= int(self._static_bytes[stage, *run])
            key = (stage, run, count)
            if key not in self._choices:
                self._choices[key] = choices_of(setting, self.fronts, *key)
            choices.append(self._choices[key])
        self.tries_all &= all(own.complete for own in choices)
        return cheapest_together(choices, setting.peak_states[device], room_bytes)

    def lacking_bytes(self) -> Ints:
        """By how much each column misses its card with the leanest choice.

        Returns:
            Missing bytes [stage, first, last], below 0 where room is left; a huge
            number where the column is not legal. Stages of one device have an
            equal share of it each.
        """
        parts = self.setting.stages_per_device
        shares = self.room_bytes - self._limits * (parts - 1) // parts
        lacking = np.full(self.legal.shape, np.iinfo(np.int64).max // 4)
        for stage, first, last in np.argwhere(self.legal).tolist():
            leanest = self.leanest(stage, first, last).levels
            needed = self._need(stage, first, last)(LevelArrays.of([leanest]))
            lacking[stage, first, last] = needed[0] - shares[stage, first, last]
        return lacking

    def all_or_none(self, full: bool) -> tuple[Floats, Ints]:
        """What all columns take if all or none of their layers are recomputed.

        Args:
            full: All that may be; else none.

        Returns:
            Extra time at speed 1 [first, last], in s, and needed bytes [stage, first,
            last].
        """
        if full not in self._all_or_none:
            runs, states = self._runs, self.setting.states_alone
            levels = runs.levels(full)
            needed = [needed_bytes(own, levels, runs.all_around) for own in states]
            self._all_or_none[full] = runs.extra_s(full), np.stack(needed)
        return self._all_or_none[full]

    def _columns(self, allowed: Flags, extra_s: Floats) -> Columns:
        """List the allowed columns, sorted by stage, last and first layer."""
        setting = self.setting
        stage, last, first = np.nonzero(allowed.swapaxes(1, 2))
        speeds = [setting.device(s).speed for s in range(setting.num_stages)]
        speed = np.array(speeds)[stage]
        rate_s = [
            setting.optimizer_s(s, 1) + setting.reduce_s(1)
            for s in range(setting.num_stages)
        ]
        fixed_s = setting.profile.device.step_overhead_s
        again_s = extra_s[stage, first, last]
        own_s = [
            run_sums([getattr(layer, part) for layer in setting.layers])[first, last]
            for part in PARTS[:4]
        ]
        forward_s, backward_s, input_grad_s, weight_grad_s = (
            time_s + fixed_s for time_s in own_s
        )
        is_first = stage == 0  # does all of its backward in W, see `stage_times`
        backward_s += again_s
        input_grad_s = np.where(is_first, 0.0, input_grad_s + again_s)
        weight_grad_s = np.where(is_first, backward_s, weight_grad_s)
        runs, least = self._runs, self._runs.least
        sends_s = _by_stage_and_layer(setting, setting.send_forward_s)
        returns_s = _by_stage_and_layer(setting, setting.send_backward_s)
        return Columns(
            stage=stage,
            first=first,
            last=last,
            times_s=np.stack(
                [
                    forward_s / speed,
                    backward_s / speed,
                    input_grad_s / speed,
                    weight_grad_s / speed,
                    sends_s[stage, last],
                    returns_s[stage, first],
                ]
            ),
            optimizer_s=runs.parameters[first, last] * np.array(rate_s)[stage],
            static_bytes=self._static_bytes[stage, first, last],
            gradients_bytes=runs.gradients_bytes[first, last],
            input_bytes=runs.input_bytes[first],
            output_bytes=runs.output_bytes[last],
            kept_bytes=least.kept_bytes[first, last],
            least_kept_bytes=least.least_kept_bytes[first, last],
            held_bytes=least.held_bytes[first, last],
            rise_bytes=least.rise_bytes[last],
        )


def _by_stage_and_layer(
    setting: Setting, time_s: Callable[[int, int], float]
) -> Floats:
    """Times that depend on the stage and on one of its layers [stage, layer]."""
    layers = range(len(setting.layers))
    return np.array(
        [[time_s(s, layer) for layer in layers] for s in range(setting.num_stages)]
    )


def _legal(setting: Setting, layers_per_stage: Sequence[int] | None) -> Flags:
    count, num_stages = len(setting.layers), setting.num_stages
    legal = np.zeros((num_stages, count, count), dtype=bool)
    if layers_per_stage is not None:
        begin = 0
        for stage, own in enumerate(layers_per_stage):
            legal[stage, begin, begin + own - 1] = True
            begin += own
        return legal
    gaps = (True, *setting.profile.legal_cuts(), True)
    for stage in range(num_stages):
        firsts = [0] if stage == 0 else range(stage, count)
        is_final = stage == num_stages - 1
        for first in firsts:
            if gaps[first]:
                lasts = [count - 1] if is_final else range(first, count - 1)
                for last in lasts:
                    legal[stage, first, last] = gaps[last + 1]
    return legal
