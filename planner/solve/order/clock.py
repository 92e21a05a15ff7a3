"""How long an order takes: the innermost loop of the search for one.

The same rules as `planner.simulate`, for rows of codes, without a timeline; a
test holds the two against each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.solve.order.problem import OrderProblem

STUCK = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocked:
    """When the actions of an order end, and whom each waited for.

    Attributes:
        makespan_s: Infinite if the devices wait for each other for ever, or the order
            is slower than was asked for [s].
        ends_s: Per device and position [s].
        waited_for: Per device and position: the maker of the message that came
            last, as device and position, or None if it had come already.
    """

    makespan_s: float
    ends_s: list[list[float]]
    waited_for: list[list[tuple[int, int] | None]]

    def critical_path(self) -> list[tuple[int, int]]:
        """Walk back from the action that ends last.

        Returns:
            Device and position of each action on the way, first to last.
        """
        device = max(
            range(len(self.ends_s)),
            key=lambda d: self.ends_s[d][-1] if self.ends_s[d] else -1.0,
        )
        position = len(self.ends_s[device]) - 1
        path = []
        while position >= 0:
            path.append((device, position))
            maker = self.waited_for[device][position]
            device, position = maker or (device, position - 1)
        path.reverse()
        return path


def clock(
    problem: OrderProblem, rows: Sequence[Sequence[int]], *, limit_s: float = STUCK
) -> Clocked:
    """Run an order on paper.

    Args:
        problem: Times and homes.
        rows: Of every device; see `fits` for what they must be.
        limit_s: Slower orders are of no interest: give up as soon as a device has
            waited so long that it cannot end before [s].

    Returns:
        When it ends and why.
    """
    duration_s, send_s, home = problem.duration_s, problem.send_s, problem.home
    last = problem.num_stages - 1
    # Messages: outputs of stage s in 2 s, input gradients in 2 s + 1.
    arrivals: list[list[tuple[float, int, int]]] = [[] for _ in range(2 * last + 2)]
    taken = [0] * (2 * last + 2)
    ends: list[list[float]] = [[] for _ in rows]
    makers: list[list[tuple[int, int] | None]] = [[] for _ in rows]
    awaited = [-1] * len(rows)
    # How long each device may still wait.
    patience_s = [
        limit_s * (1 + 1e-9) - sum(map(duration_s.__getitem__, row)) for row in rows
    ]
    ready = list(range(len(rows)))
    while ready:
        device = ready.pop()
        row, row_ends, row_makers = rows[device], ends[device], makers[device]
        now_s = row_ends[-1] if row_ends else 0.0
        awaited[device] = -1
        for position in range(len(row_ends), len(row)):
            code = row[position]
            stage, kind = code >> 2, code & 3
            maker = None
            needed = made = receiver = -1
            if kind == 0:
                if stage > 0:
                    needed = 2 * stage - 2
                if stage < last:
                    made, receiver = 2 * stage, home[stage + 1]
            elif kind != 3:
                if stage < last:
                    needed = 2 * stage + 3
                if stage > 0:
                    made, receiver = 2 * stage + 1, home[stage - 1]
            if needed >= 0:
                turn = taken[needed]
                if turn >= len(arrivals[needed]):
                    awaited[device] = needed
                    break
                taken[needed] = turn + 1
                arrival_s, by, at = arrivals[needed][turn]
                if arrival_s > now_s:
                    patience_s[device] -= arrival_s - now_s
                    if patience_s[device] < 0:
                        return Clocked(makespan_s=STUCK, ends_s=ends, waited_for=makers)
                    now_s, maker = arrival_s, (by, at)
            now_s += duration_s[code]
            row_ends.append(now_s)
            row_makers.append(maker)
            if made >= 0:
                arrivals[made].append((now_s + send_s[code], device, position))
                if awaited[receiver] == made:
                    awaited[receiver] = -1
                    ready.append(receiver)
    done = all(len(e) == len(row) for e, row in zip(ends, rows, strict=True))
    makespan_s = max((e[-1] for e in ends if e), default=0.0) if done else STUCK
    return Clocked(makespan_s=makespan_s, ends_s=ends, waited_for=makers)
