"""Small changes of an order."""

from collections import Counter

from hypothesis import given, settings
from order_samples import alike, random_problem, seeds

from planner.schedule.named import schedule_actions
from planner.schedule.validate import validate_actions
from planner.solve.order.clock import clock
from planner.solve.order.greedy import Rule, greedy_rows
from planner.solve.order.improve import improve
from planner.solve.order.moves import Change, apply, blocks_of, changes_of
from planner.solve.order.problem import (
    B,
    F,
    I,
    W,
    actions_of,
    fits,
    order_problem,
    rows_of,
)


@settings(max_examples=30, deadline=None)
@given(rng=seeds)
def test_an_improved_order_is_valid_fits_and_is_no_slower(rng):
    problem = random_problem(rng)
    rows = greedy_rows(problem, Rule(split_first=rng.randint(0, 6)))
    found, found_s = improve(problem, rows, bound_s=0.0, num_evaluations=50)
    assert found_s == clock(problem, found).makespan_s
    assert found_s <= clock(problem, rows).makespan_s
    assert all(fits(problem, device, row) for device, row in enumerate(found))
    validate_actions(
        actions_of(found),
        num_stages=problem.num_stages,
        num_microbatches=problem.num_microbatches,
    )


@settings(max_examples=30, deadline=None)
@given(rng=seeds)
def test_a_change_keeps_the_work_of_a_device(rng):
    problem = random_problem(rng)
    rows = greedy_rows(problem, Rule(split_first=rng.randint(0, 6)))
    clocked = clock(problem, rows)
    for block in blocks_of(clocked):
        row = rows[block.device]
        for change in changes_of(problem, row, block, clocked):
            assert _halves(apply(row, change)) == _halves(row), change


def _halves(row):
    """B counts as I and W."""
    parts = {F: (F,), B: (I, W), I: (I,), W: (W,)}
    return Counter(code - code % 4 + part for code in row for part in parts[code % 4])


def test_the_changes_by_name():
    row = (F, F, I, B, W)
    assert apply(row, Change(0, "move", 4, 3)) == (F, F, I, W, B)
    assert apply(row, Change(0, "move", 0, 1)) == row
    assert apply(row, Change(0, "join", 4, 4)) == (F, F, B, B)
    assert apply(row, Change(0, "part", 3, 4)) == (F, F, I, I, W, W)
    assert apply((F, F, B, B), Change(0, "part", 2, 4)) == (F, F, I, B, W)


def test_small_changes_turn_gpipe_into_something_quicker_without_more_room():
    problem = order_problem(
        alike(4), range(4), 8, room_bytes=[8] * 4, kept_bytes=[1] * 4
    )
    rows = rows_of(schedule_actions("gpipe", 4, 8))
    _, found_s = improve(problem, rows, bound_s=0.0, num_evaluations=500)
    assert found_s < clock(problem, rows).makespan_s - 1


def test_the_same_seed_makes_the_same_order():
    problem = order_problem(alike(3, 1.4, 0.6), range(3), 5)
    rows = rows_of(schedule_actions("1f1b", 3, 5))
    once, again = (
        improve(problem, rows, bound_s=0.0, num_evaluations=200, seed=3)
        for _ in range(2)
    )
    assert once == again
