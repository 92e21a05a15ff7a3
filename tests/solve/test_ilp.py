"""The ILP against every cut, with both solvers."""

import random
from itertools import combinations

import pytest
from solver_profiles import cluster, layers

from planner.cards import Link
from planner.model_profile import ModelProfile
from planner.solve.columns import ColumnTables
from planner.solve.ilp import propose
from planner.solve.paths import first_paths
from planner.solve.relaxation import step_bound_s
from planner.solve.setting import cut_from_counts
from planner.solve.settings import settings_of
from planner.solve.wishes import Wishes

HOME = (0, 1, 2)


def problem(seed):
    """Columns and paths of a random setting with 7 layers on 3 cards."""
    rng = random.Random(seed)
    rows = layers([rng.randint(1, 9) for _ in range(7)], output_bytes=3)
    link = Link(name="slow", bandwidth=10.0, latency_s=0.1)
    wishes = Wishes(schedule="1f1b", recompute="none", global_batch_size=5)
    profile = ModelProfile(layers=rows)
    (setting,) = settings_of(profile, cluster(3, link=link), wishes)
    paths = first_paths(setting.actions, (0, 1, 2), [0.1, 0.1])
    return ColumnTables(setting).without_choice(full=False), paths


@pytest.mark.parametrize("solver", ["highs", "cbc"])
@pytest.mark.parametrize("seed", range(5))
def test_no_cut_is_better_than_the_proposal(seed, solver):
    columns, paths = problem(seed)
    proposal = propose(
        columns, paths, (3, 7), scale_s=100.0, time_limit_s=20.0, solver=solver
    )
    every = [
        cut_from_counts((a, b - a, 7 - b)) for a, b in combinations(range(1, 7), 2)
    ]
    best_s = min(step_bound_s(columns, paths, cut, HOME) for cut in every)
    assert proposal.proven
    assert step_bound_s(columns, paths, proposal.cut, HOME) == pytest.approx(best_s)
    assert proposal.bound_s == pytest.approx(best_s)


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_nothing_is_proposed_where_no_chain_of_columns_exists(solver):
    columns, paths = problem(0)
    parted = columns.where(columns.stage != 1)
    proposal = propose(
        parted, paths, (3, 7), scale_s=100.0, time_limit_s=20.0, solver=solver
    )
    assert proposal == ((), float("inf"), True)
