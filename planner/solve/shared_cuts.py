"""Cuts that suit one schedule, tried under the others, and their layers moved.

Where a device has several stages the search of a setting ends before it has seen many
cuts. But schedules are alike: a cut that is good for one is a good start for another.
"""

import time
from collections.abc import Iterable

from planner.solve.candidate import Candidate
from planner.solve.moved_layers import NearCuts
from planner.solve.setting import Cut, Setting

# Layers are not moved where the step is longer than the best by more than this.
_HOPELESS = 1.1


def with_shared_cuts(
    settings: Iterable[Setting], cuts: Iterable[Cut], *, deadline: float
) -> list[Candidate]:
    """Try every cut under every setting, then move layers where that is quick.

    Args:
        settings: In which to try them.
        cuts: First and last layer of every stage, with any number of stages.
        deadline: When to stop moving layers, on the clock of `time.monotonic` [s].

    Returns:
        The best plan found of each of the settings, as far as one fits.
    """
    known = dict.fromkeys(cuts)
    starts = []
    for setting in settings:
        near = NearCuts(setting)
        if start := near.best(known, deadline=0.0):
            starts.append((start, near))
    starts.sort(key=lambda pair: pair[0].step_s)
    best: list[Candidate] = []
    for start, near in starts:
        moved = start
        limit_s = min((plan.step_s for plan in best), default=start.step_s) * _HOPELESS
        if start.step_s <= limit_s and time.monotonic() < deadline:
            moved = near.best(known, deadline=deadline) or start
            known[moved.cut] = None
        best.append(moved)
    return best
