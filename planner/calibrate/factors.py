"""By how much the layers of each stage were slower than predicted.

An action is predicted as the sum over the layers of its stage and a fixed time. The
fixed time, one for the whole profile, is scaled like all actions together, and is no
less than the pause between two actions. The layers of a stage share what is left of
the measured time, in proportion to what was predicted for each:

    factor = (measured - fixed time) / (sum over the layers)

B, or I if no B ran, includes what is recomputed: its factor is that of the recompute,
too. Of the kinds that did not run, I and W get the factor of B, and B the ratio of
I and W together. The first stage has no gradient to hand on: its W is a whole B.

Known limitations: what nothing was predicted for is not scaled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.calibrate.measured import RunTimes
from planner.model_profile import ModelProfile
from planner.plan import Plan, StagePlan
from planner.schedule.actions import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSums:
    """What a profile says of the layers of one stage, for one microbatch.

    Attributes:
        layers_s: By kind of action: sum over the layers, without recompute [s].
        again_s: What recompute adds to B or I [s].
        speed: Of its card, relative to the profile's.
    """

    layers_s: Mapping[Kind, float]
    again_s: float
    speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFactors:
    """What the times of a stage's layers are multiplied with.

    Attributes:
        forward: F, and the recompute of layers that the run did not recompute.
        backward: B.
        input_grad: I.
        weight_grad: W.
        again: Recompute of layers that the run recomputed.
    """

    forward: float
    backward: float
    input_grad: float
    weight_grad: float
    again: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeFactors:
    """What becomes of the times of a profile's actions.

    Attributes:
        fixed_s: The new fixed time of an action [s].
        stages: One entry a stage of the run's plan.
        predicted_s: By stage and kind, where such an action ran: as the profile was,
            on the stage's card [s].
        measured_s: The same by the run, pause included [s].
    """

    fixed_s: float
    stages: tuple[StageFactors, ...]
    predicted_s: Mapping[tuple[int, Kind], float]
    measured_s: Mapping[tuple[int, Kind], float]


def stage_sums(profile: ModelProfile, plan: Plan, stage: StagePlan) -> StageSums:
    """Add up the layers of a stage.

    Args:
        profile: That the plan was made from.
        plan: Of the run.
        stage: One of its stages.

    Returns:
        The sums. A plan does not state the speed of a card: it is what the
        prediction of F was divided by.
    """
    layers = profile.layers_at(plan.schedule.microbatch_size)
    own = layers[stage.first_layer : stage.last_layer + 1]
    forward_s = sum(layer.forward_s for layer in own)
    whole_s = forward_s + profile.device.step_overhead_s
    predicted_s = stage.predicted.forward_s
    return StageSums(
        layers_s={
            "F": forward_s,
            "B": sum(layer.backward_s for layer in own),
            "I": sum(layer.input_grad_s for layer in own),
            "W": sum(layer.weight_grad_s for layer in own),
        },
        again_s=sum(layer.again_s for layer in own if layer.name in stage.recompute),
        speed=whole_s / predicted_s if whole_s and predicted_s else 1.0,
    )


def time_factors(profile: ModelProfile, plan: Plan, times: RunTimes) -> TimeFactors:
    """Compare the actions of a run with their prediction.

    Args:
        profile: That the plan was made from.
        plan: Of the run.
        times: Of the run.

    Returns:
        The new fixed time, the factors of every stage, and what they rest on.
    """
    fixed_s = profile.device.step_overhead_s
    sums = [stage_sums(profile, plan, stage) for stage in plan.stages]
    measured_s = _without_first_split(times.action_s)
    predicted_s = {
        (stage, kind): (_sum_s(sums[stage], kind) + fixed_s) / sums[stage].speed
        for stage, kind in measured_s
    }
    known = [key for key in measured_s if _sum_s(sums[key[0]], key[1]) > 0]
    at_speed_1 = {key: measured_s[key] * sums[key[0]].speed for key in known}
    if known:
        expected_s = sum(predicted_s[key] * sums[key[0]].speed for key in known)
        ratio = sum(at_speed_1.values()) / expected_s
        fixed_s = min(max(fixed_s * ratio, times.pause_s), *at_speed_1.values())
    return TimeFactors(
        fixed_s=fixed_s,
        stages=tuple(
            _stage_factors(
                own, {k: s for (i, k), s in at_speed_1.items() if i == index}, fixed_s
            )
            for index, own in enumerate(sums)
        ),
        predicted_s=predicted_s,
        measured_s=measured_s,
    )


def _of_stage(
    times_s: Mapping[tuple[int, Kind], float], index: int
) -> dict[Kind, float]:
    return {kind: time_s for (stage, kind), time_s in times_s.items() if stage == index}


def _sum_s(own: StageSums, kind: Kind) -> float:
    return own.layers_s[kind] + (own.again_s if kind in "BI" else 0.0)


def _without_first_split(
    action_s: Mapping[tuple[int, Kind], float],
) -> dict[tuple[int, Kind], float]:
    """I and W of the first stage as the B that they are together."""
    found = dict(action_s)
    halves: Sequence[Kind] = ("I", "W")
    parts = [found.pop((0, kind), None) for kind in halves]
    split_s = [part for part in parts if part is not None]
    if split_s and (0, "B") not in found:
        found[0, "B"] = sum(split_s)
    return found


def _stage_factors(
    own: StageSums, measured_s: Mapping[Kind, float], fixed_s: float
) -> StageFactors:
    """Of one stage, from its measured times at speed 1."""
    rest_s = {kind: time_s - fixed_s for kind, time_s in measured_s.items()}
    forward = _ratio(rest_s.get("F"), own.layers_s["F"], 1.0)
    if "B" in rest_s:
        backward = _ratio(rest_s["B"], _sum_s(own, "B"), 1.0)
        again = backward
        input_s = max(rest_s["I"] - own.again_s * again, 0) if "I" in rest_s else None
        input_grad = _ratio(input_s, own.layers_s["I"], backward)
        weight_grad = _ratio(rest_s.get("W"), own.layers_s["W"], backward)
    else:
        input_grad = again = _ratio(rest_s.get("I"), _sum_s(own, "I"), 1.0)
        weight_grad = _ratio(rest_s.get("W"), own.layers_s["W"], input_grad)
        before_s = _sum_s(own, "I") + own.layers_s["W"]
        after_s = input_grad * _sum_s(own, "I") + weight_grad * own.layers_s["W"]
        backward = _ratio(after_s, before_s, 1.0)
    return StageFactors(
        forward=forward,
        backward=backward,
        input_grad=input_grad,
        weight_grad=weight_grad,
        again=again,
    )


def _ratio(after_s: float | None, before_s: float, otherwise: float) -> float:
    if after_s is None or not before_s:
        return otherwise
    return after_s / before_s
