"""A plan judged again is what it was, and costs what another profile says."""

from dataclasses import replace

import pytest
from solver_profiles import REF, cluster, layers

from planner.errors import WishError
from planner.model_profile import ModelProfile
from planner.solve import Wishes, best_plan, judge_again

PROFILE = ModelProfile(
    layers=layers([1.0, 2.0, 3.0, 1.0, 1.0, 2.0], activation_bytes=9)
)
CARDS = cluster(2, speeds=(1.0, 2.0))


def plan_for(schedule, recompute="none"):
    wishes = Wishes(
        schedule=schedule, recompute=recompute, time_limit_s=2.0, keeps_cards=True
    )
    return best_plan(PROFILE, CARDS, wishes, profile_ref=REF)


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("schedule", ["1f1b", "interleaved-1f1b", "zb-v", "planned"])
def test_with_its_own_profile_a_plan_costs_what_it_says(schedule, recompute):
    plan = plan_for(schedule, recompute)
    found = judge_again(plan, PROFILE, CARDS)
    assert found.step_s == plan.predicted.step_s
    assert found.memory() == tuple(s.predicted.memory_bytes for s in plan.stages)


def test_the_order_is_kept_under_other_costs():
    plan = plan_for("planned")
    slow = replace(PROFILE, layers=layers([2.0, 4.0, 6.0, 2.0, 2.0, 4.0]))
    assert judge_again(plan, slow, CARDS).step_s == 2 * plan.predicted.step_s


def test_a_plan_that_overfills_smaller_cards_does_not_fit():
    plan = plan_for("1f1b")
    assert not judge_again(plan, PROFILE, cluster(2, memory_bytes=1)).fits


def test_stages_that_lie_as_in_no_plan_of_ours_are_refused():
    plan = plan_for("1f1b")
    rows = plan.schedule.actions[::-1]
    plan = replace(plan, schedule=replace(plan.schedule, actions=rows))
    with pytest.raises(WishError, match="stages on devices 1, 0, not as many"):
        judge_again(plan, PROFILE, CARDS)
