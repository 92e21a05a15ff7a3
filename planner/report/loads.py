"""How long one microbatch takes each stage and each card, by kind of action.

An order may split the backward of some microbatches of a stage into I and W and not
that of others. I and W together can be much longer than B, so each kind counts as
often as the order has it: a stage's time is the mean over its microbatches.
"""

from collections import Counter
from collections.abc import Sequence

from planner.plan import Plan, StagePrediction
from planner.run_record import Measured, MeasuredStage
from planner.schedule.actions import parse_actions

# What is less than this above the mean is no bottleneck but noise.
_LEAST_ABOVE = 0.005

# Kind of action to a time [s], in the order in which they run.
Parts = dict[str, float]


def kinds_of_stages(plan: Plan) -> tuple[dict[str, float], ...]:
    """Which kinds of actions the order has for each stage, and how often.

    Args:
        plan: The plan.

    Returns:
        Kind to actions a microbatch, one entry a stage; F and B once for a stage
        without actions.
    """
    rows = parse_actions(plan.schedule.actions)
    counts: Counter[tuple[int, str]] = Counter(
        (action.stage, action.kind) for row in rows for action in row
    )
    num_microbatches = plan.schedule.num_microbatches
    return tuple(
        {
            kind: counts[stage.index, kind] / num_microbatches
            for kind in "FBIW"
            if counts[stage.index, kind]
        }
        or {"F": 1.0, "B": 1.0}
        for stage in plan.stages
    )


def action_times_s(
    times: StagePrediction | MeasuredStage, kinds: dict[str, float]
) -> Parts:
    """How long one action of each kind takes.

    Args:
        times: Predicted or measured.
        kinds: Of the stage, from `kinds_of_stages`.

    Returns:
        The time of one action by kind [s].
    """
    by_kind = {
        "F": times.forward_s,
        "B": times.backward_s,
        "I": times.input_grad_s,
        "W": times.weight_grad_s,
    }
    return {kind: by_kind[kind] for kind in kinds}


def predicted_parts(plan: Plan) -> tuple[Parts, ...]:
    """What the plan expects of each stage for one microbatch, in the mean.

    Args:
        plan: The plan.

    Returns:
        Such as F and B, or F, I and W, one entry a stage [s].
    """
    return _parts(plan, [stage.predicted for stage in plan.stages])


def measured_parts(plan: Plan, measured: Measured) -> tuple[Parts, ...]:
    """What a run measured of each stage for one microbatch, in the mean.

    Args:
        plan: The plan that the run followed.
        measured: What it measured.

    Returns:
        The same kinds as `predicted_parts` has [s].
    """
    return _parts(plan, measured.stages)


def all_kinds(parts: Sequence[Parts]) -> str:
    """The kinds that any stage has.

    Args:
        parts: One entry a stage.

    Returns:
        Such as `FB`, `FIW` or `FBIW`.
    """
    return "".join(kind for kind in "FBIW" if any(kind in one for one in parts))


def stage_times_s(parts: Sequence[Parts]) -> tuple[float, ...]:
    """One microbatch through each stage, there and back.

    Args:
        parts: One entry a stage.

    Returns:
        One time a stage [s].
    """
    return tuple(sum(one.values()) for one in parts)


def card_times_s(plan: Plan, parts: Sequence[Parts]) -> tuple[float, ...]:
    """One microbatch through all stages of each card, there and back.

    Args:
        plan: Says which stages a card has.
        parts: One entry a stage.

    Returns:
        One time a card [s].
    """
    times_s = stage_times_s(parts)
    return tuple(sum(times_s[stage] for stage in card.stages) for card in plan.cards)


def above_mean(times_s: Sequence[float]) -> float:
    """How far the longest time is above the mean.

    Args:
        times_s: Of each card [s].

    Returns:
        A share of the mean; 0 if nothing takes time.
    """
    mean_s = sum(times_s) / len(times_s)
    return max(times_s) / mean_s - 1 if mean_s else 0.0


def bottleneck(times_s: Sequence[float]) -> int | None:
    """The card that the others wait for.

    Args:
        times_s: Of each card [s].

    Returns:
        Its place, the first of equals; None where the longest time is less than half
        a percent above the mean, as it is with a single card.
    """
    if above_mean(times_s) < _LEAST_ABOVE:
        return None
    return max(range(len(times_s)), key=lambda card: times_s[card])


def _parts(
    plan: Plan, stages: Sequence[StagePrediction | MeasuredStage]
) -> tuple[Parts, ...]:
    pairs = zip(stages, kinds_of_stages(plan), strict=True)
    return tuple(
        {kind: kinds[kind] * s for kind, s in action_times_s(stage, kinds).items()}
        for stage, kinds in pairs
    )
