"""How long one microbatch takes each stage and each card, by kind of action.

Where the order splits the backward of a stage, I and W stand in place of B, also if
some of its microbatches are not split: I and W together are about as long as B.
"""

from collections import defaultdict
from collections.abc import Sequence

from planner.plan import Plan, StagePrediction
from planner.run_record import Measured, MeasuredStage
from planner.schedule.actions import parse_actions

# Kind of action to its time [s], in the order in which they run.
Parts = dict[str, float]


def kinds_of_stages(plan: Plan) -> tuple[str, ...]:
    """Which kinds of actions the order has for each stage.

    Args:
        plan: The plan.

    Returns:
        Such as `FB` or `FIW`, one entry a stage; `FB` for one without actions.
    """
    found: dict[int, set[str]] = defaultdict(set)
    for row in parse_actions(plan.schedule.actions):
        for action in row:
            found[action.stage].add(action.kind)
    return tuple(
        "".join(kind for kind in "FBIW" if kind in found[stage.index]) or "FB"
        for stage in plan.stages
    )


def predicted_parts(plan: Plan) -> tuple[Parts, ...]:
    """What the plan expects of each stage for one microbatch.

    Args:
        plan: The plan.

    Returns:
        F and B, or F, I and W, one entry a stage [s].
    """
    kinds = kinds_of_stages(plan)
    return tuple(_parts(kinds[s.index], s.predicted) for s in plan.stages)


def measured_parts(plan: Plan, measured: Measured) -> tuple[Parts, ...]:
    """What a run measured of each stage for one microbatch.

    Args:
        plan: The plan that the run followed.
        measured: What it measured.

    Returns:
        The same kinds as `predicted_parts` has [s].
    """
    pairs = zip(kinds_of_stages(plan), measured.stages, strict=True)
    return tuple(_parts(kinds, stage) for kinds, stage in pairs)


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


def bottleneck(times_s: Sequence[float]) -> int:
    """The card that takes longest.

    Args:
        times_s: Of each card [s].

    Returns:
        Its place, the first of equals.
    """
    return max(range(len(times_s)), key=lambda card: times_s[card])


def _parts(kinds: str, times: StagePrediction | MeasuredStage) -> Parts:
    by_kind = {
        "F": times.forward_s,
        "B": times.backward_s,
        "I": times.input_grad_s,
        "W": times.weight_grad_s,
    }
    left_out = "B" if "W" in kinds else ""
    return {kind: by_kind[kind] for kind in kinds if kind not in left_out}
