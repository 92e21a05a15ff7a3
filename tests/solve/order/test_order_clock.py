"""The inner clock against the simulator."""

import pytest
from hypothesis import given, settings
from order_samples import alike, random_question, seeds

from planner.schedule.actions import parse_actions
from planner.schedule.named import schedule_actions
from planner.simulate import simulate
from planner.solve.order.clock import STUCK, clock
from planner.solve.order.greedy import Rule, greedy_rows
from planner.solve.order.problem import actions_of, order_problem, rows_of


@settings(max_examples=30, deadline=None)
@given(rng=seeds)
def test_the_clock_and_the_simulator_agree(rng):
    question = random_question(rng)
    problem = order_problem(**question)
    rows = greedy_rows(problem, Rule(age=rng.random(), split_first=rng.randint(0, 6)))
    timeline = simulate(actions_of(rows), question["times"])
    clocked = clock(problem, rows)
    assert clocked.makespan_s == pytest.approx(timeline.makespan_s)
    for ends_s, expected_s in zip(clocked.ends_s, timeline.ends_s, strict=True):
        assert ends_s == pytest.approx(expected_s)


def test_the_critical_path_is_as_long_as_the_makespan():
    problem = order_problem(alike(4), range(4), 6)
    rows = rows_of(schedule_actions("zb-h1", 4, 6))
    clocked = clock(problem, rows)
    path = clocked.critical_path()
    length_s = sum(problem.duration_s[rows[device][at]] for device, at in path)
    assert length_s == pytest.approx(clocked.makespan_s)


def test_devices_that_wait_for_each_other_are_stuck():
    problem = order_problem(alike(2), (0, 0), 1)
    assert clock(problem, rows_of(parse_actions((("1F0", "0F0"),)))).makespan_s == STUCK


def test_slower_than_the_limit_is_given_up_and_as_quick_is_not():
    problem = order_problem(alike(4), range(4), 6)
    rows = rows_of(schedule_actions("1f1b", 4, 6))
    makespan_s = clock(problem, rows).makespan_s
    assert clock(problem, rows, limit_s=makespan_s).makespan_s == makespan_s
    assert clock(problem, rows, limit_s=makespan_s - 1).makespan_s == STUCK


def test_microbatches_of_a_named_schedule_come_back_in_their_turn():
    for name in ("1f1b", "zb-v", "interleaved-zb"):
        actions = schedule_actions(name, 4, 8)
        assert actions_of(rows_of(actions)) == actions


def test_w_belongs_to_the_microbatch_whose_backward_was_split():
    row = ("0F0", "0F1", "0F2", "0B0", "0I1", "0B2", "0W1")
    codes = rows_of(parse_actions((row,)))
    assert tuple(map(str, actions_of(codes)[0])) == row
