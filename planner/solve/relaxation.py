"""Quick lower bounds, and the columns that they rule out.

A path is a sum over stages, so the cut that makes one path shortest is itself a
shortest way from the first gap between layers to the last, found by dynamic
programming. That is a lower bound of the makespan of every cut, and the best
cut through one column is a bound for every plan with that column. Columns whose
bound exceeds the step time of a known plan are dropped, for each path in turn.

Dropping at a step time that no plan is known for tells as much: if no cut is
left, no plan is that quick; if some is, it is worth simulating. So the bound and
the best plan are driven towards each other by bisection.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.solve.columns import Columns, Floats
from planner.solve.paths import Path
from planner.solve.setting import Cut

# Sums in another order differ by rounding; nothing is dropped for that.
_ROUNDING = 1e-9
# Columns are copied once less than this share of them is left.
_WORTH_A_COPY = 0.6

# Of the search for the weights of a mean of paths.
_NUM_MIXES = 60
_MIX_RATE = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """Shortest ways from gap to gap for one cost of the columns.

    Attributes:
        columns: Whose chains they are.
        cost: Of each column [column], in s.
        ahead: Of the shortest way to a gap [stage, gap], in s.
        behind: Of the shortest way from a gap to the end [stage, gap], in s.
    """

    columns: Columns
    cost: Floats
    ahead: Floats
    behind: Floats

    @property
    def length_s(self) -> float:
        """Of the shortest chain of columns [s]; infinite if there is none."""
        return float(self.ahead[-1, -1])

    @property
    def through_s(self) -> Floats:
        """Of the shortest chain through each column [column], in s."""
        columns = self.columns
        before = self.ahead[columns.stage, columns.first]
        through: Floats = before + self.cost
        through += self.behind[columns.stage + 1, columns.last + 1]
        return through

    @property
    def cut(self) -> Cut:
        """The shortest chain; empty if there is none."""
        if not np.isfinite(self.length_s):
            return ()
        columns, cut = self.columns, []
        gap = self.ahead.shape[1] - 1
        for stage in reversed(range(self.ahead.shape[0] - 1)):
            part = _part(columns, stage)
            ending = part.start + np.flatnonzero(columns.last[part] == gap - 1)
            reach = self.ahead[stage, columns.first[ending]] + self.cost[ending]
            chosen = int(ending[reach.argmin()])
            gap = int(columns.first[chosen])
            cut.append((gap, int(columns.last[chosen])))
        return tuple(reversed(cut))


def _part(columns: Columns, stage: int) -> slice:
    """Where the columns of one stage lie."""
    begin, end = np.searchsorted(columns.stage, (stage, stage + 1))
    return slice(int(begin), int(end))


def path_cost(columns: Columns, path: Path | Sequence[Floats]) -> Floats:
    """What each column contributes to a path.

    Args:
        columns: Any columns.
        path: Counts per stage; fractions are those of a mean of paths.

    Returns:
        The cost of each column [column], in s.
    """
    cost: Floats = np.zeros(len(columns))
    for counts, time_s in zip(path, columns.times_s, strict=True):
        of_stage = np.asarray(counts)
        if of_stage.any():
            cost += of_stage[columns.stage] * time_s
    return cost


def shortest_chains(
    columns: Columns, cost: Floats, num_stages: int, num_layers: int
) -> Chains:
    """Find the cheapest cut, and the cheapest through each column.

    Args:
        columns: What may be used.
        cost: Of each column [column], not negative.
        num_stages: Every one gets one column.
        num_layers: Every one is covered once.

    Returns:
        Their lengths, and the cut when asked for.
    """
    ahead = np.full((num_stages + 1, num_layers + 1), np.inf)
    behind = np.full((num_stages + 1, num_layers + 1), np.inf)
    ahead[0, 0] = behind[num_stages, num_layers] = 0.0
    parts = [_part(columns, stage) for stage in range(num_stages)]
    for stage, part in enumerate(parts):
        reach = ahead[stage, columns.first[part]] + cost[part]
        np.minimum.at(ahead[stage + 1], columns.last[part] + 1, reach)
    for stage in reversed(range(num_stages)):
        part = parts[stage]
        reach = behind[stage + 1, columns.last[part] + 1] + cost[part]
        np.minimum.at(behind[stage], columns.first[part], reach)
    return Chains(columns=columns, cost=cost, ahead=ahead, behind=behind)


def quicker_than(
    columns: Columns,
    paths: Sequence[Path],
    limit_s: float,
    num_stages: int,
    num_layers: int,
) -> Columns:
    """Drop every column that no plan of at most some step time can hold.

    Args:
        columns: What may be used.
        paths: Lower bounds of the makespan.
        limit_s: The step time [s].
        num_stages: Every one gets one column.
        num_layers: Every one is covered once.

    Returns:
        What is left; empty if there is proof that no plan is that quick.
    """
    limit_s *= 1 + _ROUNDING
    left = np.ones(len(columns), dtype=bool)
    for path in paths:
        # Copies are dear: what is dropped stays a while, at an infinite cost.
        if left.sum() < _WORTH_A_COPY * len(columns):
            columns, left = columns.where(left), np.ones(left.sum(), dtype=bool)
        if not len(columns):
            break
        cost = np.where(left, path_cost(columns, path), np.inf)
        chains = shortest_chains(columns, cost, num_stages, num_layers)
        # The slowest optimizer is at least the column's own.
        left = chains.through_s + columns.optimizer_s <= limit_s
    return columns if left.all() else columns.where(left)


def step_bound_s(
    columns: Columns, paths: Sequence[Path], cut: Cut, home: Sequence[int]
) -> float:
    """Longest path and slowest optimizer of a cut.

    Args:
        columns: Among which the cut's are.
        paths: Lower bounds of the makespan.
        cut: First and last layer of every stage.
        home: Which device works on each stage.

    Returns:
        A lower bound of its step time [s].
    """
    own = columns.where(_positions(columns, cut))
    lengths = [float(path_cost(own, path).sum()) for path in paths]
    optimizer_s = np.bincount(home, weights=own.optimizer_s)
    return max(lengths) + float(optimizer_s.max())


def mixed_bound_s(
    columns: Columns, paths: Sequence[Path], num_stages: int, num_layers: int
) -> float:
    """A lower bound from all paths at once.

    Any weighted mean of paths is a lower bound too, and its shortest chain bounds
    every cut. The weights move towards the paths that are longest for that chain
    (multiplicative weights), which is where the ILP without whole numbers would end.

    Args:
        columns: What may be used; at least one chain.
        paths: Lower bounds of the makespan.
        num_stages: Every one gets one column.
        num_layers: Every one is covered once.

    Returns:
        A lower bound of the makespan of every cut [s].
    """
    costs = np.stack([path_cost(columns, path) for path in paths])
    weights = np.full(len(paths), 1 / len(paths))
    best_s = 0.0
    for number in range(_NUM_MIXES):
        chains = shortest_chains(columns, weights @ costs, num_stages, num_layers)
        best_s = max(best_s, chains.length_s)
        lengths_s = costs[:, _positions(columns, chains.cut)].sum(axis=1)
        if not lengths_s.max() or lengths_s.max() <= best_s * (1 + _ROUNDING):
            break
        weights *= np.exp(_MIX_RATE / (1 + number) ** 0.5 * lengths_s / lengths_s.max())
        weights /= weights.sum()
    return best_s


def _positions(columns: Columns, cut: Cut) -> list[int]:
    """Where the columns of a cut lie."""
    size = int(columns.last.max()) + 1
    keys = (columns.stage * size + columns.last) * size + columns.first
    wanted = [
        (stage * size + last) * size + first for stage, (first, last) in enumerate(cut)
    ]
    return [int(place) for place in np.searchsorted(keys, wanted)]
