"""Cuts near a cut: layers move from stage to stage as long as the step gets shorter.

Every cut is judged in the order of the setting, with the recompute choice that fits
and adds least time.
"""

import time
from collections.abc import Iterable, Iterator
from itertools import permutations

from planner.solve.candidate import Candidate, judge
from planner.solve.columns import ColumnTables
from planner.solve.setting import Cut, Setting, counts_of, cut_from_counts


class NearCuts:
    """The cuts of one order, each judged once.

    Args:
        setting: With a named order or one of our own.
    """

    def __init__(self, setting: Setting):
        self._setting = setting
        self._legal = setting.profile.legal_cuts()
        self._tables = ColumnTables(setting)
        self._known: dict[Cut, Candidate | None] = {}

    def plan(self, cut: Cut) -> Candidate | None:
        """Judge a cut.

        Args:
            cut: First and last layer of every stage.

        Returns:
            The plan; None if it does not fit.
        """
        if cut not in self._known:
            recompute = self._tables.recompute_of(cut)
            found = judge(self._setting, cut, recompute) if recompute else None
            self._known[cut] = found if found is not None and found.fits else None
        return self._known[cut]

    def best(
        self, starts: Iterable[Cut], *, deadline: float = float("inf")
    ) -> Candidate | None:
        """Move layers, one at a time, as long as the step gets shorter.

        Args:
            starts: Cuts to start from the best of; those with another number of
                stages are passed over.
            deadline: When to stop, on the clock of `time.monotonic` [s].

        Returns:
            The best plan found; None if no start fits.
        """
        cuts = [cut for cut in starts if len(cut) == self._setting.num_stages]
        best = quickest(plan for cut in cuts if (plan := self.plan(cut)))
        while best is not None:
            quicker = self._quicker(best, deadline)
            if quicker is None:
                break
            best = quicker
        return best

    def _quicker(self, best: Candidate, deadline: float) -> Candidate | None:
        """The first cut with one layer moved that is quicker."""
        for cut in self._moved(best.cut):
            if time.monotonic() > deadline:
                break
            plan = self.plan(cut)
            if plan is not None and plan.step_s < best.step_s * (1 - 1e-9):
                return plan
        return None

    def near(self, cut: Cut) -> list[Candidate]:
        """Judge every cut with one layer moved.

        Args:
            cut: First and last layer of every stage.

        Returns:
            Those that fit, quickest first.
        """
        plans = [plan for near in self._moved(cut) if (plan := self.plan(near))]
        return sorted(plans, key=lambda plan: plan.step_s)

    def _moved(self, cut: Cut) -> Iterator[Cut]:
        """Every legal cut with one layer moved from a stage to another."""
        counts = counts_of(cut)
        for source, target in permutations(range(len(counts)), 2):
            changed = list(counts)
            changed[source] -= 1
            changed[target] += 1
            moved = cut_from_counts(changed) if changed[source] else ()
            if moved and all(self._legal[last] for _, last in moved[:-1]):
                yield moved


def quickest(candidates: Iterable[Candidate]) -> Candidate | None:
    """The one with the shortest step.

    Args:
        candidates: To choose from.

    Returns:
        The first of the quickest; None if there is none.
    """
    return min(candidates, key=lambda candidate: candidate.step_s, default=None)
