"""An order of F, B, I and W made for these very stages.

1. Orders by many rules (`greedy`), the rules around the best ones tried, too.
2. The best of them, and of the orders that the caller brings, are made better by
   small changes (`improve`) until their makespan meets the bound or the
   evaluations are used up.

Nothing here looks at a clock on the wall: the same question has the same answer.

Known limitations: one device does one thing at a time and transfers do not wait
for each other, as in `planner.simulate`; what W frees is freed when it ends.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import product

from planner.schedule.actions import Actions
from planner.schedule.validate import validate_actions
from planner.simulate import StageTimes
from planner.solve.order.bound import bound_s
from planner.solve.order.clock import clock
from planner.solve.order.greedy import Rule, greedy_rows
from planner.solve.order.improve import improve
from planner.solve.order.problem import (
    OrderProblem,
    Rows,
    actions_of,
    fits,
    order_problem,
    rows_of,
)

NUM_EVALUATIONS = 1000
_INF = float("inf")
# How many of the best orders are made better.
_NUM_IMPROVED = 3
# How many rules are tried, unless one meets the bound.
_NUM_RULES = 60


def planned_actions(
    times: Sequence[StageTimes],
    device_of_stage: Sequence[int],
    num_microbatches: int,
    *,
    room_bytes: Sequence[float] | None = None,
    kept_bytes: Sequence[float] | None = None,
    held_bytes: Sequence[float] | None = None,
    starts: Iterable[Actions] = (),
    num_evaluations: int = NUM_EVALUATIONS,
) -> Actions:
    """Make an order for some stages.

    Args:
        times: One entry a stage; without I and W no B is split.
        device_of_stage: Rows of the order, counted from 0 without a gap.
        num_microbatches: Of one step, at least 1.
        room_bytes: Per device, for what its stages keep and hold; None for no
            limit [bytes].
        kept_bytes: Per stage, of one microbatch from F to B or I [bytes].
        held_bytes: The same from I to W; None for as much as from F [bytes].
        starts: Orders of the same stages on the same devices to start from, such as
            the named ones; those that exceed the room are passed over.
        num_evaluations: How many small changes may be judged; 0 for the rules alone.

    Returns:
        The actions of every device, never slower than any of `starts` that fits.

    Raises:
        InfeasibleError: One microbatch alone does not fit a device.
        ValueError: The arguments do not belong together, or a start is no order of
            these stages.
    """
    problem = order_problem(
        times,
        device_of_stage,
        num_microbatches,
        room_bytes=room_bytes,
        kept_bytes=kept_bytes,
        held_bytes=held_bytes,
    )
    given = [_given_rows(problem, actions) for actions in starts]
    rows = best_rows(problem, [g for g in given if g], num_evaluations=num_evaluations)
    actions = actions_of(rows)
    validate_actions(actions, num_stages=len(times), num_microbatches=num_microbatches)
    return actions


def best_rows(
    problem: OrderProblem, given: Sequence[Rows], *, num_evaluations: int
) -> Rows:
    """The quickest order that rules, given orders and small changes lead to.

    Args:
        problem: Times, homes and memory.
        given: Orders to start from that fit.
        num_evaluations: How many small changes may be judged.

    Returns:
        Its rows.
    """
    limit_s = bound_s(problem)
    known: dict[Rows, float] = {}
    for rows in (*given, *_ruled_rows(problem, limit_s)):
        if rows not in known:
            known[rows] = clock(problem, rows).makespan_s
    # Python's sort is stable: of equally quick orders the one known first.
    ranked = sorted(known, key=lambda rows: known[rows])[:_NUM_IMPROVED]
    best, best_s = ranked[0], known[ranked[0]]
    share = num_evaluations // len(ranked)
    for seed, rows in enumerate(ranked):
        if best_s <= limit_s * (1 + 1e-9):
            break
        found, found_s = improve(
            problem, rows, bound_s=limit_s, num_evaluations=share, seed=seed
        )
        if found_s < best_s:
            best, best_s = found, found_s
    return best


def first_rules(problem: OrderProblem) -> list[Rule]:
    """Rules that are far apart.

    Args:
        problem: Times, homes and memory.

    Returns:
        Every combination of few values; splits only where a stage may be split.
    """
    count, devices = problem.num_microbatches, problem.num_devices
    splits = [(0, 0)]
    splittable = [s for s in range(problem.num_stages) if problem.may_split(s)]
    if splittable:
        splits.append((count, 0))
    if any(problem.splitting_s(s) > 0 for s in splittable):
        splits.append((devices, devices))
    return [
        Rule(
            age=age,
            patience=patience,
            slack=slack,
            split_first=first,
            split_last=last,
        )
        for (first, last), age, slack, patience in product(
            splits, (0.3, 1.0), (1.0, 3.0, _INF), (0.0, 0.5)
        )
    ]


def _ruled_rows(problem: OrderProblem, limit_s: float) -> list[Rows]:
    """Orders by rules, also by those that differ little from the best rule."""
    judged: dict[Rule, tuple[float, Rows]] = {}

    def try_rule(rule: Rule) -> float:
        if rule not in judged:
            rows = greedy_rows(problem, rule)
            judged[rule] = (clock(problem, rows).makespan_s, rows)
        return judged[rule][0]

    for rule in first_rules(problem):
        try_rule(rule)
    followed: set[Rule] = set()
    while len(judged) < _NUM_RULES:
        open_rules = [rule for rule in judged if rule not in followed]
        best = min(open_rules, key=try_rule, default=None)
        if best is None or min(s for s, _ in judged.values()) <= limit_s * (1 + 1e-9):
            break
        followed.add(best)
        for near in _near(problem, best):
            try_rule(near)
    return [rows for _, rows in judged.values()]


def _near(problem: OrderProblem, rule: Rule) -> list[Rule]:
    """Rules that differ from one in a single value."""
    count = problem.num_microbatches
    slack = min(rule.slack, 2.0 * problem.num_devices)
    last = min(rule.split_last or 1, count)
    change = dataclasses.replace
    return [
        change(rule, age=rule.age * 0.7),
        change(rule, age=rule.age * 1.4),
        change(rule, patience=rule.patience + 0.25),
        change(rule, patience=max(rule.patience - 0.25, 0.0)),
        change(rule, slack=slack + 0.5),
        change(rule, slack=slack - 0.5),
        change(rule, split_first=rule.split_first // 2),
        change(rule, split_first=min(2 * rule.split_first + 1, count)),
        change(rule, split_last=last // 2),
        change(rule, split_last=min(2 * last, count)),
        change(rule, eager=not rule.eager),
    ]


def _given_rows(problem: OrderProblem, actions: Actions) -> Rows | None:
    """An order of the caller as rows; None if it exceeds the room."""
    validate_actions(
        actions,
        num_stages=problem.num_stages,
        num_microbatches=problem.num_microbatches,
    )
    homes = {a.stage: device for device, row in enumerate(actions) for a in row}
    if tuple(homes[s] for s in range(problem.num_stages)) != problem.home:
        msg = f"an order to start from has other homes of stages than {problem.home}"
        raise ValueError(msg)
    rows = rows_of(actions)
    if all(fits(problem, device, row) for device, row in enumerate(rows)):
        return rows
    return None
