"""Cutting a chain of layers by numbers: the tables and walks that the rules share.

A table holds one number for every run of layers [first, last], infinite where no
stage may begin or end there.
"""

from collections.abc import Sequence

import numpy as np

from planner.solve.columns import Floats
from planner.solve.setting import Cut, Setting


def run_weights(setting: Setting, weights: Sequence[float]) -> Floats:
    """Weight of every run of layers that may be a stage.

    Args:
        setting: Layers and where they may be cut.
        weights: Of each layer.

    Returns:
        The sums [first, last]; infinite where no stage is legal.
    """
    gaps = np.array([True, *setting.profile.legal_cuts(), True])
    ends = np.concatenate([[0.0], np.cumsum(weights)])
    own = ends[None, 1:] - ends[:-1, None]
    legal = np.triu(gaps[:-1, None] & gaps[None, 1:])
    return np.where(legal, np.maximum(own, 0.0), np.inf)


def smallest_largest(tables: Sequence[Floats]) -> float:
    """The smallest number that the largest of all stages can have.

    Args:
        tables: One a stage.

    Returns:
        That number; infinite if no cut is legal.
    """
    count = len(tables[0])
    reached = np.full(count + 1, np.inf)
    reached[0] = 0.0
    for table in tables:
        after = np.full(count + 1, np.inf)
        after[1:] = np.maximum(reached[:count, None], table).min(axis=0)
        reached = after
    return float(reached[count])


def smallest_sum(tables: Sequence[Floats]) -> Cut:
    """The cut whose stages have the smallest sum.

    Args:
        tables: One a stage; at least one cut is legal.

    Returns:
        The cut; among equal ones that with longer early stages.
    """
    count = len(tables[0])
    reached = np.full(count + 1, np.inf)
    reached[0] = 0.0
    begins = []
    for table in tables:
        reach = reached[:count, None] + table
        begins.append(count - 1 - reach[::-1].argmin(axis=0))
        reached = np.concatenate([[np.inf], reach.min(axis=0)])
    cut, last = [], count - 1
    for begin in reversed(begins):
        first = int(begin[last])
        cut.append((first, last))
        last = first - 1
    return tuple(reversed(cut))
