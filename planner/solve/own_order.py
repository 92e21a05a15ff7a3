"""An order of our own for the best cuts that named schedules found.

The search of a named schedule judges a cut by that schedule's order. Here the order
is made for the cut: for each number of stages a device and each placement, the best
cut found gets an order made for its very times and memory (`planner.solve.order`).
Then, as long as there is time, a cut is sought for the quickest order, an order for
that cut, and so on. The quickest of all that fits is taken if it beats every named one.
"""

import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from planner.errors import InfeasibleError
from planner.memory import stage_parameters
from planner.memory.device_bytes import (
    Effect,
    action_effects,
    sent_bytes,
    static_memory,
)
from planner.model_profile import LayerProfile
from planner.schedule.validate import KINDS
from planner.solve.candidate import Candidate, judge, parameters_of, stages_bytes
from planner.solve.moved_layers import NearCuts, quickest
from planner.solve.order import planned_actions
from planner.solve.setting import PLANNED, Cut, Setting, cut_from_counts
from planner.solve.wishes import Wishes

# How many cuts get an order of their own: it takes a second or two each.
_MOST_CUTS = 2
# How many near cuts are tried before an order's cut is taken as the best, and what
# one must gain to be followed.
_MOST_HOPES, _WORTH = 8, 1e-4
# Cuts that are slower than the best by more than this are not given one.
_HOPELESS = 1.1


def own_orders(
    candidates: Iterable[Candidate], *, cut_deadline: float
) -> list[Candidate]:
    """Give the best cuts orders of their own.

    Args:
        candidates: The best plan of each setting that was searched.
        cut_deadline: When to stop seeking other cuts for them, on the clock of
            `time.monotonic`; minus infinity where the cut is wished [s].

    Returns:
        The same cuts in orders made for them, as far as they fit, each at least as
        quick as it was in its named order; the last may have another cut.
    """
    ranked = sorted(candidates, key=lambda candidate: candidate.step_s)
    chosen: dict[tuple[object, ...], Candidate] = {}
    for candidate in ranked:
        setting = candidate.setting
        is_alone = len(setting.cluster) == 1  # there is but one order
        if candidate.step_s <= ranked[0].step_s * _HOPELESS and not is_alone:
            chosen.setdefault((setting.home, setting.microbatch_size), candidate)
    made = [
        own
        for candidate in [*chosen.values()][:_MOST_CUTS]
        if (own := with_own_order(candidate))
    ]
    made.sort(key=lambda candidate: candidate.step_s)
    return [*made, *_with_own_cuts(made, cut_deadline)]


def _with_own_cuts(starts: Sequence[Candidate], deadline: float) -> list[Candidate]:
    """A cut for each order, an order for the cut, in turn, while there is time."""
    tried = {start.cut for start in starts}
    made = []
    for start in starts:
        best, hopes = start, _hopes(start, tried, deadline)
        while hopes and time.monotonic() < deadline:
            cut = hopes.pop(0)
            tried.add(cut.cut)
            found = quickest(x for x in (cut, with_own_order(cut)) if x) or cut
            if found.step_s < best.step_s * (1 - _WORTH):
                best, hopes = found, _hopes(found, tried, deadline)
        made.append(best)
    return made


def _hopes(
    candidate: Candidate, tried: Container[Cut], deadline: float
) -> list[Candidate]:
    """Other cuts in its order, most hopeful first: its layers moved, one or more."""
    if time.monotonic() > deadline:
        return []
    cuts = NearCuts(candidate.setting)
    best = cuts.best([candidate.cut], deadline=deadline)
    near = [best] if best else []
    near += cuts.near(candidate.cut)
    return [plan for plan in near if plan.cut not in tried][:_MOST_HOPES]


def least_step_s(setting: Setting, wishes: Wishes) -> float:
    """What no order of a setting's layers can beat.

    Args:
        setting: Layers, devices and microbatches.
        wishes: Of the user, for a fixed cut.

    Returns:
        All work, without recompute or waiting, and the optimizer: of the cut's
        fullest device, or of any cut, shared out evenly over all devices [s].
    """
    if wishes.layers_per_stage is None:
        speed: float = sum(device.speed for device in setting.cluster.devices)
        return _work_s(setting, setting.layers) / speed
    cut = cut_from_counts(wishes.layers_per_stage)
    runs = [setting.layers[first : last + 1] for first, last in cut]
    return max(
        _work_s(setting, [layer for stage in stages for layer in runs[stage]])
        / device.speed
        for stages, device in zip(
            setting.stages_of, setting.cluster.devices, strict=True
        )
    )


def _work_s(setting: Setting, layers: Sequence[LayerProfile]) -> float:
    """All that has to be done for some layers in a step, at speed 1 [s]."""
    work_s = 0.0
    for layer in layers:
        backward_s = layer.backward_s
        if split_s := layer.input_grad_s + layer.weight_grad_s:
            backward_s = min(backward_s, split_s)
        work_s += setting.num_microbatches * (layer.forward_s + backward_s)
    parameters = stage_parameters(layers, setting.profile.ties)
    rates = setting.profile.device.optimizer_s_per_parameter
    rate_s = rates.get(setting.optimizer.name, 0.0) + setting.reduce_s(1)
    return work_s + parameters * rate_s


def with_own_order(candidate: Candidate) -> Candidate | None:
    """Make an order for one cut.

    Args:
        candidate: The cut in a named order.

    Returns:
        The cut in its own order; None if no order was found that fits.
    """
    setting = candidate.setting
    for share in (0.0, 0.5, 1.0):
        room_bytes, kept_bytes, held_bytes = _memory(candidate, share)
        try:
            order = planned_actions(
                candidate.times,
                setting.home,
                setting.num_microbatches,
                room_bytes=room_bytes,
                kept_bytes=kept_bytes,
                held_bytes=held_bytes,
                starts=[setting.actions],
            )
        except InfeasibleError:
            return None
        own = replace(setting, schedule=PLANNED, order=order)
        found = judge(own, candidate.cut, candidate.recompute)
        if found.fits:
            return found
    return None


def _memory(
    candidate: Candidate, share: float
) -> tuple[list[float], list[float], list[float]]:
    """What the order may fill: what is left beside a share of what else there is.

    That is the largest rise, above what its own microbatch keeps anyway, and what
    comes up while the step goes on. With none of it an order may turn out too large,
    with all of it hardly any can.
    """
    setting = candidate.setting
    parameters = parameters_of(setting, candidate.cut)
    own = stages_bytes(setting, candidate.cut, candidate.recompute, parameters)
    rooms = []
    for device, stages in enumerate(setting.stages_of):
        together = {stage: own[stage] for stage in stages}
        reserve_bytes = setting.cluster.devices[device].reserve_bytes
        static = static_memory(together, setting.num_microbatches, reserve_bytes)
        effects = action_effects(together)
        rise_bytes = max(
            _rise_bytes(effects[stage, kind, False], own[stage].kept_bytes, share)
            for stage in stages
            for kind in KINDS
        )
        # In the end all is sent, and all gradients are there.
        in_the_end = sum(
            own[stage].gradients_bytes
            + setting.num_microbatches * sum(sent_bytes(together, stage))
            for stage in stages
        )
        capacity_bytes = setting.cluster.devices[device].memory_bytes
        rooms.append(capacity_bytes - static.total - rise_bytes - share * in_the_end)
    return (
        rooms,
        [float(memory.kept_bytes) for memory in own],
        [float(memory.held_bytes) for memory in own],
    )


def _rise_bytes(effect: Effect, kept_bytes: int, share: float) -> float:
    """How far an action rises above what is counted before and after it."""
    growth = effect.growth_bytes
    most = effect.rise_bytes - max(growth, 0)
    least = max(most - kept_bytes, 0) if growth < 0 else most
    return least + share * (most - least)
