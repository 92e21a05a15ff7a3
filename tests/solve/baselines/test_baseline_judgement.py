"""What is said about a way, and that a proven plan is beaten by no other cut."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_profiles import REF, cluster, layers, random_cluster, random_profile

from planner.errors import InfeasibleError
from planner.model_profile import ModelProfile
from planner.plan import Baseline
from planner.solve import Wishes, best_plan, other_ways
from planner.solve.baselines.judgement import comparison, judged


@pytest.mark.parametrize(
    ("step_s", "text"),
    [
        (9.0, "quicker than the plan by 10 %"),
        (9.95, "as quick as the plan"),
        (10.0, "as quick as the plan"),
        (12.34, "23 % longer than the plan"),
        (34.0, "3.4 times as long as the plan"),
    ],
)
def test_a_step_time_is_told_beside_the_plan_s(step_s, text):
    assert comparison(step_s, 10.0) == text


def test_what_does_not_fit_tells_the_card_and_what_it_lacks():
    entry = Baseline(
        name="x",
        layers_per_stage=(1,),
        step_s=1.0,
        fits=False,
        recompute="full",
        card="gpu:1",
        missing_bytes=2**20,
        judgement="weights 9.00 GiB",
    )
    assert judged(entry, 2.0).judgement == (
        "gpu:1 lacks 1.00 MiB, even with every block recomputed: weights 9.00 GiB"
    )


def test_where_no_plan_fits_nothing_is_compared_with_it():
    profile = ModelProfile(layers=layers([1.0] * 4, num_parameters=100))
    for entry in other_ways(profile, cluster(2, memory_bytes=100), Wishes()):
        assert not entry.fits
        assert "the plan" not in entry.judgement


def test_beside_one_card_there_is_nothing_else():
    plan = best_plan(
        ModelProfile(layers=layers([1.0] * 4)), cluster(1), Wishes(), profile_ref=REF
    )
    assert plan.baselines == ()


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    schedule=st.sampled_from(["1f1b", "gpipe", "zb-h1"]),
    recompute=st.sampled_from(["auto", "none", "full"]),
)
def test_no_other_cut_beats_an_optimal_plan(seed, schedule, recompute):
    rng = random.Random(seed)
    profile, cards = random_profile(rng), random_cluster(rng, rng.choice([2, 3]))
    wishes = Wishes(schedule=schedule, recompute=recompute, keeps_cards=True)
    try:
        plan = best_plan(profile, cards, wishes, profile_ref=REF)
    except InfeasibleError:
        return
    assert len(plan.baselines) == 10
    for entry in plan.baselines:
        assert entry.fits == (entry.missing_bytes == 0)
        same = entry.schedule == plan.schedule.name and len(entry.layers_per_stage) > 1
        if same and entry.fits and plan.solver.status == "optimal":
            assert entry.step_s >= plan.predicted.step_s * (1 - 1e-6)
