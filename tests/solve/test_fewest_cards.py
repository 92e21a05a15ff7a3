"""The solver never needs fewer cards than the least there can be."""

import random

import pytest
from solver_profiles import REF, cluster, random_profile

from planner.errors import InfeasibleError
from planner.least_cards import least_cards
from planner.model_profile import LayerProfile, ModelProfile
from planner.optimizers import optimizer_spec
from planner.solve import Wishes, best_plan

ADAMW = optimizer_spec("adamw", "bfloat16")


@pytest.mark.parametrize("seed", range(60))
def test_the_solver_never_needs_fewer(seed):
    rng = random.Random(seed)
    profile = random_profile(rng)
    budget_bytes = rng.choice([500, 800, 1200, 2000])
    least = least_cards(profile, ADAMW, budget_bytes) or len(profile.layers) + 1
    wishes = Wishes(global_batch_size=1, optimizer="adamw")
    for count in range(1, min(least, sum(profile.legal_cuts()) + 2)):
        with pytest.raises(InfeasibleError):
            best_plan(profile, cluster(count, budget_bytes), wishes, profile_ref=REF)


def test_the_solver_reaches_it_where_nothing_else_takes_room():
    layers = (LayerProfile(name=f"{i}", num_parameters=100) for i in range(6))
    profile = ModelProfile(layers=tuple(layers))
    least = least_cards(profile, ADAMW, 3300)
    wishes = Wishes(optimizer="adamw")
    plan = best_plan(profile, cluster(least, 3300), wishes, profile_ref=REF)
    assert len(plan.stages) == least == 3
