"""Orders by rules."""

from hypothesis import given, settings
from hypothesis import strategies as st
from order_samples import alike, random_problem, seeds

from planner.schedule.actions import format_actions
from planner.schedule.validate import validate_actions
from planner.solve.order.greedy import Rule, greedy_rows
from planner.solve.order.problem import actions_of, fits, order_problem

rules = st.builds(
    Rule,
    age=st.sampled_from([0.0, 0.3, 1.0, 10.0]),
    patience=st.sampled_from([0.0, 0.5, 2.0]),
    slack=st.sampled_from([0.0, 1.0, float("inf")]),
    split_first=st.integers(0, 6),
    split_last=st.integers(0, 6),
    eager=st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(rng=seeds, rule=rules)
def test_every_rule_makes_an_order_that_ends_and_keeps_to_the_room(rng, rule):
    problem = random_problem(rng)
    rows = greedy_rows(problem, rule)
    validate_actions(
        actions_of(rows),
        num_stages=problem.num_stages,
        num_microbatches=problem.num_microbatches,
    )
    assert all(fits(problem, device, row) for device, row in enumerate(rows))


def test_what_the_oldest_microbatch_needs_no_more_is_used_by_the_next():
    problem = order_problem(
        alike(4), (0, 1, 1, 0), 2, room_bytes=[2, 2], kept_bytes=[1, 1, 1, 1]
    )
    rows = format_actions(actions_of(greedy_rows(problem, Rule())))
    # 0F1 takes what 3B0 has freed; before, it would lock 3F0 out for ever.
    assert rows[0] == ("0F0", "3F0", "3B0", "0F1", "0B0", "3F1", "3B1", "0B1")


def test_a_split_backward_fills_the_wait_with_w():
    problem = order_problem(alike(2), (0, 1), 2)
    rows = greedy_rows(problem, Rule(split_first=2))
    #    F0 F1 .. B0 B0 B1 B1
    #    .. F0 I0 F1 I1 W0 W1
    assert format_actions(actions_of(rows)) == (
        ("0F0", "0F1", "0B0", "0B1"),
        ("1F0", "1I0", "1F1", "1I1", "1W0", "1W1"),
    )
