"""Cuts of one schedule tried under the others."""

import math
import random

import pytest
from solver_profiles import random_cluster, random_profile

from planner.solve.moved_layers import NearCuts, quickest
from planner.solve.search import search
from planner.solve.settings import settings_of
from planner.solve.shared_cuts import with_shared_cuts
from planner.solve.wishes import Wishes


def settings_and_plans(seed):
    rng = random.Random(seed)
    profile, cluster = random_profile(rng), random_cluster(rng, 2)
    settings = settings_of(profile, cluster, Wishes())
    plans = [plan for setting in settings if (plan := search(setting).own)]
    return settings, plans


SEEDS = [seed for seed in range(12) if len(settings_and_plans(seed)[1]) > 1]


def test_there_are_enough_cases_to_speak_of():
    assert len(SEEDS) >= 5


@pytest.mark.parametrize("seed", SEEDS)
def test_every_setting_gets_at_least_the_best_of_the_cuts(seed):
    settings, plans = settings_and_plans(seed)
    cuts = [plan.cut for plan in plans]
    shared = with_shared_cuts(settings, cuts, deadline=0.0)
    for plan in shared:
        near = NearCuts(plan.setting)
        tried = [near.plan(cut) for cut in cuts if len(cut) == len(plan.cut)]
        assert plan.fits
        assert plan.step_s == quickest(x for x in tried if x).step_s


@pytest.mark.parametrize("seed", SEEDS)
def test_time_only_makes_plans_quicker(seed):
    settings, plans = settings_and_plans(seed)
    cuts = [plan.cut for plan in plans]
    at_once = with_shared_cuts(settings, cuts, deadline=0.0)
    moved = with_shared_cuts(settings, cuts, deadline=math.inf)
    before = {id(plan.setting): plan.step_s for plan in at_once}
    assert all(plan.step_s <= before[id(plan.setting)] for plan in moved)
    assert quickest(moved).step_s <= quickest(plans).step_s * (1 + 1e-9)


def test_a_schedule_that_no_cut_fits_is_left_out():
    settings, plans = settings_and_plans(SEEDS[0])
    assert with_shared_cuts(settings, [], deadline=math.inf) == []
    assert with_shared_cuts([], [plan.cut for plan in plans], deadline=0.0) == []
