"""Cuts near a cut, judged in the order of their setting."""

import random
import time

import pytest
from solver_profiles import random_cluster, random_profile

from planner.solve.moved_layers import NearCuts, quickest
from planner.solve.own_order import own_orders
from planner.solve.search import search
from planner.solve.setting import counts_of
from planner.solve.settings import settings_of
from planner.solve.wishes import Wishes


def setting_and_plan(seed):
    rng = random.Random(seed)
    profile, cluster = random_profile(rng), random_cluster(rng, 2)
    setting = settings_of(profile, cluster, Wishes(schedule="1f1b"))[0]
    return setting, search(setting).own


SEEDS = [seed for seed in range(20) if setting_and_plan(seed)[1]]


def test_there_are_enough_plans_to_speak_of():
    assert len(SEEDS) >= 8


@pytest.mark.parametrize("seed", SEEDS)
def test_near_cuts_have_one_layer_moved_and_legal_ends(seed):
    setting, plan = setting_and_plan(seed)
    legal = setting.profile.legal_cuts()
    counts = counts_of(plan.cut)
    for near in NearCuts(setting).near(plan.cut):
        changes = [a - b for a, b in zip(counts_of(near.cut), counts, strict=True)]
        assert sorted(changes) == [-1, *[0] * (len(counts) - 2), 1]
        assert all(legal[last] for _, last in near.cut[:-1])
        assert near.fits


@pytest.mark.parametrize("seed", SEEDS)
def test_from_any_start_no_near_cut_is_quicker(seed):
    setting, plan = setting_and_plan(seed)
    cuts = NearCuts(setting)
    for start in [plan, *cuts.near(plan.cut)]:
        best = cuts.best([start.cut])
        assert plan.step_s * (1 - 1e-6) <= best.step_s <= start.step_s
        near = quickest(cuts.near(best.cut))
        assert near is None or near.step_s >= best.step_s * (1 - 1e-9)


def test_cuts_of_other_lengths_and_none_at_all():
    setting, plan = setting_and_plan(SEEDS[0])
    cuts = NearCuts(setting)
    assert cuts.best([]) is None
    assert cuts.best([(*plan.cut, (99, 99))]) is None


def test_no_time_leaves_the_start_as_it_is():
    setting, plan = setting_and_plan(SEEDS[0])
    assert NearCuts(setting).best([plan.cut], deadline=0.0).cut == plan.cut


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_an_order_with_a_cut_of_its_own_is_never_slower(seed):
    _, plan = setting_and_plan(seed)
    wished = own_orders([plan], cut_deadline=float("-inf"))
    free = own_orders([plan], cut_deadline=time.monotonic() + 20)
    assert all(found.cut == plan.cut for found in wished)
    assert min(x.step_s for x in free) <= min(x.step_s for x in wished)
