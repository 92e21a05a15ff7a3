"""What no order can beat."""

import pytest
from hypothesis import given, settings
from order_samples import alike, random_problem, seeds

from planner.schedule.named import SCHEDULES, schedule_actions
from planner.schedule.placement import device_of_stage
from planner.simulate import StageTimes, simulate
from planner.solve.order.bound import bound_s
from planner.solve.order.clock import clock
from planner.solve.order.planned import best_rows
from planner.solve.order.problem import order_problem


@settings(max_examples=25, deadline=None)
@given(rng=seeds)
def test_no_order_is_quicker_than_the_bound(rng):
    problem = random_problem(rng)
    found_s = clock(problem, best_rows(problem, [], num_evaluations=100)).makespan_s
    assert bound_s(problem) <= found_s * (1 + 1e-9)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("split", [(1.0, 1.0), (1.4, 0.6), (1.5, 1.5)])
def test_no_named_schedule_is_quicker_than_the_bound(name, split):
    schedule = SCHEDULES[name]
    per_device = schedule.min_stages_per_device
    homes = device_of_stage(schedule.placement, 4, per_device)
    times = alike(len(homes), *split)
    makespan_s = simulate(schedule_actions(name, 4, 8), times).makespan_s
    assert bound_s(order_problem(times, homes, 8)) <= makespan_s + 1e-9


def test_one_microbatch_of_room_is_one_round_trip_each():
    times = (StageTimes(forward_s=1.0, backward_s=2.0),) * 3
    problem = order_problem(
        times, range(3), 5, room_bytes=[1, 9, 9], kept_bytes=[1, 1, 1]
    )
    # F F F B B B and then the next: 5 * (3 + 6).
    assert bound_s(problem) == pytest.approx(45.0)


def test_without_a_split_the_fill_is_that_of_the_textbook():
    times = (StageTimes(forward_s=1.0, backward_s=2.0),) * 4
    assert bound_s(order_problem(times, range(4), 8)) == pytest.approx((8 + 3) * 3)
