"""The search against a referee that tries everything through the simulator."""

import dataclasses
import random
from itertools import chain, combinations, pairwise, product

import pytest
from solver_profiles import REF, cluster, layers, random_cluster, random_profile

from planner.cards import LINKS, Link
from planner.errors import InfeasibleError
from planner.model_profile import ModelProfile
from planner.optimizers import automatic_optimizers
from planner.solve import Wishes, best, best_plan, check_plan, search
from planner.solve.candidate import judge
from planner.solve.ilp import propose
from planner.solve.setting import cut_from_counts
from planner.solve.settings import settings_of


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
        for counts in all_counts(len(profile.layers), setting.num_stages):
            cut = cut_from_counts(counts)
            if not all(legal[last] for _, last in cut[:-1]):
                continue
            allowed = [
                [i for i in range(a, b + 1) if setting.may_recompute(i)] for a, b in cut
            ]
            # `full` is no choice: every layer that may be recomputed is.
            full = wishes.recompute == "full"
            choices = [[frozenset(x)] if full else subsets(x) for x in allowed]
            for recompute in product(*choices):
                candidate = judge(setting, cut, recompute)
                if candidate.fits:
                    best_s = min(best_s, candidate.step_s)
    return best_s


@pytest.fixture
def named_only(monkeypatch):
    """No order of our own, which may beat everything that the referee knows."""
    monkeypatch.setattr(best, "own_orders", lambda candidates, cut_deadline: [])
    monkeypatch.setattr(best, "_COUPLED_SETTING_S", 60.0)
    monkeypatch.setattr(best, "_COUPLED_S", 600.0)


def best_with_any_optimizer_s(profile, cluster, wishes):
    """With the first optimizer with which anything fits; infinite if with none."""
    names = automatic_optimizers(profile.dtype)
    found = (
        exhaustive_best_s(profile, cluster, dataclasses.replace(wishes, optimizer=name))
        for name in names
    )
    return next((step_s for step_s in found if step_s < float("inf")), float("inf"))


@pytest.mark.parametrize("seed", range(150))
def test_plan_equals_exhaustive_search(seed, named_only):
    rng = random.Random(seed)
    profile = random_profile(rng)
    num_stages = rng.randint(2, min(4, 1 + sum(profile.legal_cuts())))
    cluster = random_cluster(rng, num_stages)
    wishes = Wishes(
        global_batch_size=rng.choice([1, 2, 3, 5, 8]),
        recompute=rng.choice(["auto", "auto", "auto", "none", "full"]),
        keeps_cards=True,
    )
    expected_s = best_with_any_optimizer_s(profile, cluster, wishes)
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


@pytest.mark.parametrize("seed", range(200, 240))
def test_the_ilp_alone_ends_with_the_same_plan(seed, monkeypatch, named_only):
    # On cases this small bisection leaves nothing to prove: do without it, and
    # without dropping columns.
    asked = []

    def counted(*args, **options):
        asked.append(args)
        return propose(*args, **options)

    monkeypatch.setattr(search, "propose", counted)
    monkeypatch.setattr(search, "_NUM_BISECTIONS", 0)
    monkeypatch.setattr(search, "quicker_than", lambda columns, *rest: columns)
    monkeypatch.setattr(search, "_lowest_s", lambda state, columns: 0.0)
    rng = random.Random(seed)
    profile = random_profile(rng)
    num_stages = rng.randint(2, min(4, 1 + sum(profile.legal_cuts())))
    cluster = random_cluster(rng, num_stages)
    wishes = Wishes(global_batch_size=rng.choice([1, 2, 3, 5, 8]), keeps_cards=True)
    expected_s = best_with_any_optimizer_s(profile, cluster, wishes)
    if expected_s == float("inf"):
        with pytest.raises(InfeasibleError):
            best_plan(profile, cluster, wishes, profile_ref=REF)
        return
    plan = best_plan(profile, cluster, wishes, profile_ref=REF)
    assert asked
    assert plan.predicted.step_s == pytest.approx(expected_s, rel=1e-6)
    assert plan.solver.status == "optimal"


@pytest.mark.parametrize("seed", range(20))
def test_no_cut_of_a_longer_model_is_quicker(seed):
    rng = random.Random(seed)
    rows = layers([rng.uniform(1, 2) for _ in range(13)], output_bytes=10)
    profile = ModelProfile(layers=rows)
    link = Link(name="slow", bandwidth=10.0, latency_s=rng.choice([0.0, 1.0, 4.0]))
    speeds = rng.choice([None, [1.0, 2.0, 1.0, 0.5]])
    cards = cluster(4, link=link, speeds=speeds)
    if rng.random() < 0.5:
        links = rng.sample(
            [link, LINKS["free"], Link(name="x", bandwidth=2.0, latency_s=1.0)], 3
        )
        cards = dataclasses.replace(cards, links=tuple(links))
    schedule = rng.choice(["1f1b", "gpipe", "zb-h1"])
    wishes = Wishes(
        schedule=schedule, recompute="none", global_batch_size=12, keeps_cards=True
    )
    expected_s = exhaustive_best_s(profile, cards, wishes)
    plan = best_plan(profile, cards, wishes, profile_ref=REF)
    assert plan.predicted.step_s == pytest.approx(expected_s, rel=1e-6)
    assert plan.solver.status == "optimal"
