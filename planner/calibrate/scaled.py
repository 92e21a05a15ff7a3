"""A profile scaled by what a run measured.

    times of layers    by the factors of the stage that a layer was in, see `factors`;
                       every profiled microbatch size by those of the run's size
    fixed time         of an action, see `factors`
    links              of the run's neighbouring devices, see `links`
    optimizer step     of every optimizer by the factor of the run's, the slowest
                       device held against the largest prediction
    memory             the most by which the peak of a device was above its
                       prediction is kept free on every device; one that was below
                       moves nothing, so that a plan still fits

Every layer was in one stage, so nothing is averaged. Calibrating again with the same
times, against the new prediction, changes nothing.

Known limitations: what happens in a step outside its actions, transfers and optimizer
(data, loss, tied gradients) is in no profile and stays unpredicted.
"""

import dataclasses
import math
from collections.abc import Sequence

from planner.calibrate.factors import (
    StageFactors,
    TimeFactors,
    stage_sums,
    time_factors,
)
from planner.calibrate.links import calibrated_links
from planner.calibrate.measured import run_times
from planner.calibrate.moved import Calibration, Moved
from planner.memory import parameters_of_stages
from planner.model_profile import LayerProfile, ModelProfile
from planner.plan import Plan
from planner.run_record import Measured


def calibrate(
    profile: ModelProfile, plan: Plan, measured: Measured, *, source: str = ""
) -> Calibration:
    """Scale a profile by what a run measured.

    Args:
        profile: That the plan was made from.
        plan: Of the run, with the predictions of this profile.
        measured: By the run, see `check_run`.
        source: What the new profile says it was calibrated by, as a run directory.

    Returns:
        The new profile, and what moved.
    """
    times = run_times(plan, measured)
    factors = time_factors(profile, plan, times)
    cluster, moved_links = calibrated_links(profile, plan, times.transfers)
    rates, moved_optimizer = _optimizer(profile, plan, measured)
    extra_bytes, moved_memory = _memory(plan, measured)
    device = dataclasses.replace(
        profile.device,
        step_overhead_s=factors.fixed_s,
        optimizer_s_per_parameter=rates,
        unpredicted_bytes=extra_bytes,
    )
    calibrated = dataclasses.replace(
        profile,
        calibrated_by=source,
        device=device,
        cluster=cluster,
        layers=_layers(profile.layers, plan, factors.stages),
        microbatches={
            size: _layers(layers, plan, factors.stages)
            for size, layers in profile.microbatches.items()
        },
    )
    moved = (
        *_moved_actions(profile, factors),
        *moved_links,
        *moved_optimizer,
        *moved_memory,
    )
    return Calibration(profile=calibrated, moved=moved)


def _layers(
    layers: Sequence[LayerProfile], plan: Plan, factors: Sequence[StageFactors]
) -> tuple[LayerProfile, ...]:
    return tuple(
        _layer(
            layers[index], factors[stage.index], layers[index].name in stage.recompute
        )
        for stage in plan.stages
        for index in range(stage.first_layer, stage.last_layer + 1)
    )


def _layer(
    layer: LayerProfile, factors: StageFactors, recomputed: bool
) -> LayerProfile:
    forward_s = layer.forward_s * factors.forward
    again_s = layer.again_s * (factors.again if recomputed else factors.forward)
    # As long as F, it stays unsaid if nobody had measured it.
    is_said = layer.recompute_s or not math.isclose(again_s, forward_s)
    return dataclasses.replace(
        layer,
        forward_s=forward_s,
        backward_s=layer.backward_s * factors.backward,
        input_grad_s=layer.input_grad_s * factors.input_grad,
        weight_grad_s=layer.weight_grad_s * factors.weight_grad,
        recompute_s=again_s if is_said else 0.0,
    )


def _moved_actions(profile: ModelProfile, factors: TimeFactors) -> tuple[Moved, ...]:
    actions = [
        Moved(
            what=f"stage {stage}, {kind}",
            predicted=factors.predicted_s[stage, kind],
            measured=factors.measured_s[stage, kind],
        )
        for stage, kind in sorted(factors.measured_s, key=_as_run)
    ]
    fixed = Moved(
        what="fixed part of an action",
        predicted=profile.device.step_overhead_s,
        measured=factors.fixed_s,
    )
    return (*actions, fixed)


def _as_run(key: tuple[int, str]) -> tuple[int, int]:
    stage, kind = key
    return stage, "FBIW".index(kind)


def _optimizer(
    profile: ModelProfile, plan: Plan, measured: Measured
) -> tuple[dict[str, float], tuple[Moved, ...]]:
    """Times per parameter of every optimizer, and what moved."""
    rates, name = profile.device.optimizer_s_per_parameter, plan.optimizer.name
    loads = []
    for card in plan.cards:
        stages = [plan.stages[index] for index in card.stages]
        runs = [profile.layers[s.first_layer : s.last_layer + 1] for s in stages]
        count = sum(parameters_of_stages(runs, profile.ties))
        loads.append(count / stage_sums(profile, plan, stages[0]).speed)
    found_s = max(stage.optimizer_s for stage in measured.stages)
    if not found_s or not max(loads):
        return dict(rates), ()
    rate_s = found_s / max(loads)
    moved = Moved(
        what=f"optimizer step, {name}",
        predicted=rates.get(name, 0.0) * max(loads),
        measured=found_s,
    )
    factor = moved.factor or 1.0
    scaled = {other: rate * factor for other, rate in rates.items()}
    return {**scaled, name: rate_s}, (moved,)


def _memory(plan: Plan, measured: Measured) -> tuple[int, tuple[Moved, ...]]:
    """What is to be kept free besides the prediction, and each device's peak."""
    peaks = [measured.stages[card.stages[0]].peak_bytes for card in plan.cards]
    moved = tuple(
        Moved(
            what=f"peak on {card.device}",
            predicted=card.own_bytes,
            measured=peak_bytes,
            unit="bytes",
        )
        for card, peak_bytes in zip(plan.cards, peaks, strict=True)
        if peak_bytes
    )
    extra = [round(entry.measured - entry.predicted) for entry in moved]
    return max([0, *extra]), moved
