"""What a plan says besides its stages."""

import random
from dataclasses import replace

import pytest
from solver_profiles import REF, cluster, layers, random_cluster, random_profile

from planner.model_profile import ModelProfile
from planner.plan_text import describe_plan
from planner.solve import Wishes, best_plan


def solved(profile, cards, **wishes):
    return best_plan(profile, cards, Wishes(**wishes), profile_ref=REF)


@pytest.mark.parametrize("seed", range(8))
def test_alternatives_are_other_ways_and_none_is_quicker(seed):
    rng = random.Random(seed)
    plan = solved(random_profile(rng), random_cluster(rng, 2), keeps_cards=True)
    steps_s = [other.step_s for other in plan.alternatives]
    assert steps_s == sorted(steps_s)
    assert all(step_s >= plan.predicted.step_s * (1 - 1e-6) for step_s in steps_s)
    kinds = [
        (x.schedule, x.num_copies, x.stages_per_device, x.microbatch_size)
        for x in plan.alternatives
    ]
    assert len(set(kinds)) >= len(kinds) - 2  # dualpipe-v and zb-v have names
    for other in plan.alternatives:
        assert sum(other.layers_per_stage) == len(plan.layer_names)


def test_time_that_is_no_work_is_told():
    rows = layers(
        [1.0] * 4, activation_bytes=100, recompute_activation_bytes=1, output_bytes=1
    )
    free = solved(
        ModelProfile(layers=rows), cluster(2), schedule="1f1b", global_batch_size=4
    )
    assert free.predicted.recompute_fraction == 0
    bubble = free.predicted.bubble_fraction
    assert f"not work: bubble {bubble:.1%}".replace("%", " %") in describe_plan(free)
    full = solved(
        ModelProfile(layers=rows),
        cluster(2),
        schedule="1f1b",
        global_batch_size=4,
        recompute="full",
    )
    # Two of four layers run F again, a third of what each takes otherwise.
    busy = 1 - full.predicted.bubble_fraction
    assert full.predicted.recompute_fraction == pytest.approx(busy * 2 / 14)
    assert "recompute" in describe_plan(full)


def test_the_text_names_what_came_next_and_in_what_it_differs():
    rows = layers([1.0] * 8, output_bytes=1)
    plan = solved(ModelProfile(layers=rows), cluster(4), global_batch_size=8)
    assert plan.alternatives
    assert "next best: " in describe_plan(plan)
    copied = solved(
        ModelProfile(layers=rows),
        cluster(4),
        global_batch_size=8,
        schedule="1f1b",
        num_copies=None,
    )
    other = copied.alternatives[0]
    assert other.num_copies != copied.num_copies
    assert f"1f1b ({other.num_copies} copies)" in describe_plan(copied)
    alone = replace(copied, alternatives=())
    assert "next best" not in describe_plan(alone)
