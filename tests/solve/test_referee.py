"""The search against a referee that tries everything through the simulator."""

import random
from itertools import chain, combinations, pairwise, product

import pytest
from solver_profiles import REF, random_cluster, random_profile

from planner.errors import InfeasibleError
from planner.solve import Wishes, best_plan, check_plan
from planner.solve.setting import cut_from_counts, judge, settings_of


def all_counts(num_layers, num_stages):
    for gaps in combinations(range(1, num_layers), num_stages - 1):
        ends = (0, *gaps, num_layers)
        yield tuple(b - a for a, b in pairwise(ends))


def subsets(items):
    items = tuple(items)
    sizes = range(len(items) + 1)
    return list(map(frozenset, chain(*(combinations(items, n) for n in sizes))))


def exhaustive_best_s(profile, cluster, wishes):
    """Smallest step time over all cuts, recompute subsets and schedules."""
    best_s = float("inf")
    legal = profile.legal_cuts()
    for setting in settings_of(profile, cluster, wishes):
        for counts in all_counts(len(profile.layers), len(cluster)):
            cut = cut_from_counts(counts)
            if not all(legal[last] for _, last in cut[:-1]):
                continue
            choices = [
                subsets(i for i in range(a, b + 1) if setting.may_recompute(i))
                for a, b in cut
            ]
            for recompute in product(*choices):
                candidate = judge(setting, cut, recompute)
                if candidate.fits:
                    best_s = min(best_s, candidate.step_s)
    return best_s


@pytest.mark.parametrize("seed", range(150))
def test_plan_equals_exhaustive_search(seed):
    rng = random.Random(seed)
    profile = random_profile(rng)
    num_stages = rng.randint(2, min(4, 1 + sum(profile.legal_cuts())))
    cluster = random_cluster(rng, num_stages)
    wishes = Wishes(
        global_batch_size=rng.choice([1, 2, 3, 5, 8]),
        recompute=rng.choice(["auto", "auto", "auto", "none", "full"]),
    )
    expected_s = exhaustive_best_s(profile, cluster, wishes)
    if expected_s == float("inf"):
        with pytest.raises(InfeasibleError) as caught:
            best_plan(profile, cluster, wishes, profile_ref=REF)
        assert caught.value.shortfall_bytes > 0
        return
    plan = best_plan(profile, cluster, wishes, profile_ref=REF)
    assert plan.predicted.step_s == pytest.approx(expected_s, rel=1e-6)
    assert plan.solver.status == "optimal"
    assert plan.solver.bound_s == pytest.approx(expected_s, rel=1e-6)
    check_plan(plan, profile)
