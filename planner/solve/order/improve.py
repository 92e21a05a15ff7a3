"""Make an order better by small changes, judged by the clock.

Threshold accepting: a change may make the order a little slower, ever less so,
so that the search leaves the places where every single change is a loss. It
counts evaluations and draws from a seeded generator: the same question has the
same answer on every machine.
"""

import random
from collections.abc import Iterator

from planner.solve.order.clock import Clocked, clock
from planner.solve.order.moves import Change, apply, blocks_of, changes_of
from planner.solve.order.problem import OrderProblem, Rows, fits

# Of the makespan, what a change may cost at the start.
_FIRST_THRESHOLD = 0.01


def improve(
    problem: OrderProblem,
    rows: Rows,
    *,
    bound_s: float,
    num_evaluations: int,
    seed: int = 0,
) -> tuple[Rows, float]:
    """Change an order as long as the evaluations last.

    Args:
        problem: Times, homes and memory.
        rows: Where to start; valid, and within the room.
        bound_s: No order is quicker: when to stop [s].
        num_evaluations: How many orders may be put on the clock.
        seed: Of the generator.

    Returns:
        The best order found and its makespan, never worse than the start [s].
    """
    rng = random.Random(seed)
    now, clocked = rows, clock(problem, rows)
    best, best_s = now, clocked.makespan_s
    changes = _changes(problem, now, clocked, rng)
    count = 0
    while count < num_evaluations and best_s > bound_s * (1 + 1e-9):
        change = next(changes, None)
        if change is None:
            if now is best:
                break
            # Nothing near: start again from the best.
            now, clocked = best, clock(problem, best)
            changes = _changes(problem, now, clocked, rng)
            continue
        device = change.device
        row = apply(now[device], change)
        if row == now[device] or not fits(problem, device, row):
            continue
        count += 1
        share = _FIRST_THRESHOLD * (1 - count / num_evaluations) ** 2 * rng.random()
        limit_s = clocked.makespan_s * (1 + share)
        changed = (*now[:device], row, *now[device + 1 :])
        tried = clock(problem, changed, limit_s=limit_s)
        if tried.makespan_s <= limit_s:
            now, clocked = changed, tried
            changes = _changes(problem, now, clocked, rng)
            if tried.makespan_s < best_s:
                best, best_s = now, tried.makespan_s
    return best, best_s


def _changes(
    problem: OrderProblem, rows: Rows, clocked: Clocked, rng: random.Random
) -> Iterator[Change]:
    """Every small change, block by block, in a random order."""
    blocks = blocks_of(clocked)
    rng.shuffle(blocks)
    for block in blocks:
        changes = list(changes_of(problem, rows[block.device], block, clocked))
        rng.shuffle(changes)
        yield from changes
