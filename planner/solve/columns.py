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

from planner.memory import (
    StageBytes,
    communication_bytes,
    kept_bytes,
    layer_peak_bytes,
    shared_parameters,
    stage_bytes,
    stage_parameters,
)
from planner.solve.paths import PARTS
from planner.solve.recompute import Choice, fronts_of
from planner.solve.setting import Cut, Recompute, Setting
from planner.solve.together import Choices, cheapest_together, choices_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
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
        optimizer_s: Optimizer step [s].
        static_bytes: Weights, gradients, states and buffers [bytes].
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
        room_bytes: What each leaves for activations and workspace [bytes].
        tries_all: False once choices of the stages of one device were thinned.
    """

    def __init__(
        self, setting: Setting, layers_per_stage: Sequence[int] | None = None
    ) -> None:
        self.setting = setting
        self.tries_all = True
        self.fronts = fronts_of(setting.layers, setting.recompute)
        self.legal = _legal(setting, layers_per_stage)
        self._parameters = _parameters(setting)
        self._static_bytes = _static_bytes(setting, self._parameters)
        budgets = [setting.device(s).budget_bytes for s in range(setting.num_stages)]
        self._limits = np.array(budgets, dtype=np.int64)[:, None, None]
        self.room_bytes = self._limits - self._static_bytes
        self._least = _least_needs(setting)
        self._choices: dict[tuple[int, tuple[int, int]], Choices] = {}
        self._needs: dict[bool, tuple[Floats, Ints, Ints]] = {}

    def without_choice(self, *, full: bool) -> Columns:
        """Columns in which all or none of the layers are recomputed.

        Args:
            full: All that may be; else none.

        Returns:
            The columns that fit so.
        """
        extra_s, needed = self._all_or_none(full)
        allowed = self.legal & (needed <= self.room_bytes)
        return self._columns(allowed, np.broadcast_to(extra_s, allowed.shape))

    def quick(self) -> Columns:
        """Columns with no recompute where that fits, else with full recompute.

        Returns:
            The columns that fit.
        """
        none_s, none_needed = self._all_or_none(False)
        full_s, full_needed = self._all_or_none(True)
        without = none_needed <= self.room_bytes
        allowed = self.legal & (without | (full_needed <= self.room_bytes))
        return self._columns(allowed, np.where(without, none_s, full_s))

    def optimistic(self) -> Columns:
        """Columns without recompute that may fit with some; times only too low.

        Returns:
            A superset of the columns that fit.
        """
        allowed = self.legal & (self.room_bytes >= 0)
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
        _, needed = self._all_or_none(False)
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
        in_flight = self.setting.in_flight[stage]
        room_bytes = int(self.room_bytes[stage, first, last])
        return self.fronts.cheapest(first, last, in_flight, room_bytes)

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
            if self.setting.is_coupled:
                found = self._together(device, runs)
            else:
                found = self._alone(stages[0], runs[0])
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
        stages = self.setting.stages_of[device]
        room_bytes = self.setting.cluster.devices[device].budget_bytes
        room_bytes += self._shared_bytes(runs)
        choices = []
        for stage, run in zip(stages, runs, strict=True):
            room_bytes -= int(self._static_bytes[stage, *run])
            if (stage, run) not in self._choices:
                self._choices[stage, run] = choices_of(
                    self.setting, self.fronts, stage, run
                )
            choices.append(self._choices[stage, run])
        self.tries_all &= all(own.complete for own in choices)
        return cheapest_together(choices, self.setting.peak_states[device], room_bytes)

    def _shared_bytes(self, runs: list[tuple[int, int]]) -> int:
        """What the tied parameters of stages of one device would count twice."""
        setting = self.setting
        held = [
            setting.layers[i] for first, last in runs for i in range(first, last + 1)
        ]
        together = stage_parameters(held, setting.profile.ties)
        apart = sum(int(self._parameters[run]) for run in runs)
        return (apart - together) * setting.optimizer.bytes_per_parameter

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
            in_flight = self.setting.in_flight[stage]
            leanest = self.fronts.leanest(first, last, in_flight)
            needed = leanest.needed_bytes(in_flight)
            lacking[stage, first, last] = needed - shares[stage, first, last]
        return lacking

    def _all_or_none(self, full: bool) -> tuple[Floats, Ints]:
        """Extra time [first, last] and bytes [stage, first, last] of one choice."""
        if full not in self._needs:
            self._needs[full] = _walk(self.setting, full)
        extra_s, kept, highest = self._needs[full]
        in_flight = np.array(self.setting.in_flight)[:, None, None]
        return extra_s, (in_flight - 1) * kept + highest

    def _columns(self, allowed: Flags, extra_s: Floats) -> Columns:
        """List the allowed columns, sorted by stage, last and first layer."""
        setting = self.setting
        stage, last, first = np.nonzero(allowed.swapaxes(1, 2))
        speeds = [setting.device(s).speed for s in range(setting.num_stages)]
        speed = np.array(speeds)[stage]
        rate_s = [setting.optimizer_s(s, 1) for s in range(setting.num_stages)]
        fixed_s = setting.profile.device.step_overhead_s
        again_s = extra_s[stage, first, last]
        own_s = [
            _run_sums([getattr(layer, part) for layer in setting.layers])[first, last]
            for part in PARTS[:4]
        ]
        forward_s, backward_s, input_grad_s, weight_grad_s = (
            time_s + fixed_s for time_s in own_s
        )
        is_first = stage == 0  # does all of its backward in W, see `stage_times`
        backward_s += again_s
        input_grad_s = np.where(is_first, 0.0, input_grad_s + again_s)
        weight_grad_s = np.where(is_first, backward_s, weight_grad_s)
        kept, least_kept, held, rise = self._least
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
            optimizer_s=self._parameters[first, last] * np.array(rate_s)[stage],
            static_bytes=self._static_bytes[stage, first, last],
            kept_bytes=kept[first, last],
            least_kept_bytes=least_kept[first, last],
            held_bytes=held[first, last],
            rise_bytes=rise[last],
        )


def _by_stage_and_layer(
    setting: Setting, time_s: Callable[[int, int], float]
) -> Floats:
    """Times that depend on the stage and on one of its layers [stage, layer]."""
    layers = range(len(setting.layers))
    return np.array(
        [[time_s(s, layer) for layer in layers] for s in range(setting.num_stages)]
    )


def _run_sums(values: Sequence[float]) -> NDArray[np.float64]:
    """Sum of every run of layers [first, last]."""
    ends = np.concatenate([[0.0], np.cumsum(values)])
    sums: Floats = np.maximum(ends[None, 1:] - ends[:-1, None], 0.0)
    return sums


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


def _static_bytes(setting: Setting, parameters: Ints) -> Ints:
    """Weights, gradients, states and buffers of every column [stage, first, last]."""
    places = range(len(setting.layers))
    static = np.empty((setting.num_stages, len(places), len(places)), dtype=np.int64)
    static[:] = parameters * setting.optimizer.bytes_per_parameter
    for stage in range(setting.num_stages):
        crossing = (setting.crosses_before(stage), setting.crosses_after(stage))
        received = [crossing[0] * setting.input_bytes(first) for first in places]
        sent = [crossing[1] * setting.output_bytes(last) for last in places]
        both = np.array(received)[:, None] + np.array(sent)[None, :]
        static[stage] += (
            communication_bytes(
                num_microbatches=setting.num_microbatches, input_bytes=1, output_bytes=0
            )
            * both
        )
    return static


def _layer_alone(setting: Setting, index: int, recomputed: bool) -> StageBytes:
    return stage_bytes(
        [setting.layers[index]],
        recomputed=[recomputed],
        num_parameters=0,
        optimizer=setting.optimizer,
        input_bytes=0,
        output_bytes=0,
        is_first=False,
    )


def _least_needs(setting: Setting) -> tuple[Ints, Ints, Ints, Ints]:
    """What one microbatch needs at least, whatever is recomputed.

    Kept without and with the most recompute, and held from I to W, of every run of
    layers [first, last]; and how far B or I of the last layer rises [last].
    """
    rows = []
    for index in range(len(setting.layers)):
        choices = (False, True) if setting.may_recompute(index) else (False,)
        if setting.recompute == "full":
            choices = choices[-1:]
        alone = [_layer_alone(setting, index, again) for again in choices]
        rows.append(
            (
                alone[0].kept_bytes,
                min(own.kept_bytes for own in alone),
                # The first stage holds what it kept.
                min(min(own.held_bytes, own.kept_bytes) for own in alone),
                min(
                    min(own.backward_peak_bytes, own.input_grad_peak_bytes)
                    for own in alone
                ),
            )
        )
    kept, least, held, rise = zip(*rows, strict=True)
    sums = [_run_sums(values).astype(np.int64) for values in (kept, least, held)]
    return sums[0], sums[1], sums[2], np.array(rise, dtype=np.int64)


def _walk(setting: Setting, full: bool) -> tuple[Floats, Ints, Ints]:
    """Extra time, kept and highest bytes of every run of layers [first, last]."""
    layers = setting.layers
    again = [full and setting.may_recompute(i) for i in range(len(layers))]
    kept = [kept_bytes(x, a) for x, a in zip(layers, again, strict=True)]
    peaks = [layer_peak_bytes(x, a) for x, a in zip(layers, again, strict=True)]
    extra_s = _run_sums(
        [x.again_s if a else 0.0 for x, a in zip(layers, again, strict=True)]
    )
    kept_sums = np.zeros((len(layers), len(layers)), dtype=np.int64)
    highest_levels = np.zeros_like(kept_sums)
    for first in range(len(layers)):
        level = highest = 0
        for last in range(first, len(layers)):
            highest = max(highest, level + peaks[last], level + kept[last])
            level += kept[last]
            kept_sums[first, last] = level
            highest_levels[first, last] = highest
    return extra_s, kept_sums, highest_levels
