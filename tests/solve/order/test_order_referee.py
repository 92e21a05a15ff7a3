"""Our own order against an integer program that knows nothing of rules."""

import random

import pytest
from order_referee import quickest_s
from order_samples import random_problem

from planner.solve.order.bound import bound_s
from planner.solve.order.clock import clock
from planner.solve.order.planned import NUM_EVALUATIONS, best_rows

# Seeds whose proof takes seconds. Eight of the nine orders are the quickest there
# are; seed 6 has 28 s where 27 are possible.
LARGEST_GAP = 1 / 27


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5, 6, 8, 9, 10])
def test_two_or_three_devices_are_at_most_one_second_from_the_quickest(seed):
    problem = random_problem(
        random.Random(seed), devices=(2, 3), microbatches=(2, 4), largest=2
    )
    rows = best_rows(problem, [], num_evaluations=NUM_EVALUATIONS)
    own_s = clock(problem, rows).makespan_s
    quickest = quickest_s(problem, round(own_s))
    assert bound_s(problem) <= quickest + 1e-6
    allowed = LARGEST_GAP if seed == 6 else 0.0
    assert own_s <= quickest * (1 + allowed) + 1e-6
