"""The twelve cases of `own_order.py`, and the best cut of an order by hand.

Times, memory and recompute of a cut are those of `planner solve`.
"""

from collections.abc import Iterable, Iterator
from itertools import permutations
from pathlib import Path

from planner.cluster import parse_cluster
from planner.model_profile import load_profile
from planner.solve import Wishes
from planner.solve.candidate import Candidate, judge
from planner.solve.columns import ColumnTables
from planner.solve.setting import Cut, Setting, cut_from_counts, settings_of

PROFILES = Path(__file__).parents[1] / "profiles"
# Sample profile and number of cards like its own.
CASES = (
    ("llama-3.2-1b", 4),
    ("qwen2.5-1.5b", 4),
    ("gemma-2-2b", 4),
    ("qwen2.5-3b", 4),
    ("llama-3.2-3b", 4),
    ("gemma-2-2b", 8),
    ("qwen2.5-3b", 8),
    ("llama-3.2-3b", 8),
    ("llama-2-7b-hf", 8),
    ("mistral-7b-v0.1", 8),
    ("qwen2.5-7b", 8),
    ("llama-3.1-8b", 8),
)


def settings_of_case(name: str, num_cards: int) -> tuple[Setting, ...]:
    """Every named schedule that is possible in a case.

    Args:
        name: Of the sample profile.
        num_cards: How many cards there are.

    Returns:
        The settings, with microbatches of one sequence.
    """
    profile = load_profile(PROFILES / f"{name}-rtx3090.json")
    cluster = parse_cluster(str(num_cards), profile)
    return settings_of(profile, cluster, Wishes(microbatch_size=1))


def quickest(candidates: Iterable[Candidate]) -> Candidate | None:
    """The one with the shortest step.

    Args:
        candidates: To choose from.

    Returns:
        The first of the quickest; None if there is none.
    """
    return min(candidates, key=lambda candidate: candidate.step_s, default=None)


class Cuts:
    """The cuts of one order, each judged once.

    Args:
        setting: With a named order or one of our own.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._tables = ColumnTables(setting)
        self._known: dict[Cut, Candidate | None] = {}

    def plan(self, cut: Cut) -> Candidate | None:
        """Judge a cut with the recompute choice that fits and adds least time.

        Args:
            cut: First and last layer of every stage.

        Returns:
            The plan; None if it does not fit.
        """
        if cut not in self._known:
            recompute = self._tables.recompute_of(cut)
            found = judge(self.setting, cut, recompute) if recompute else None
            self._known[cut] = found if found is not None and found.fits else None
        return self._known[cut]

    def best(self, starts: Iterable[Cut]) -> Candidate | None:
        """Move layers from stage to stage as long as the step gets shorter.

        Args:
            starts: Cuts to start from the best of; those with another number of
                stages are passed over.

        Returns:
            The best plan found; None if no start fits.
        """
        cuts = [cut for cut in starts if len(cut) == self.setting.num_stages]
        best = quickest(plan for cut in cuts if (plan := self.plan(cut)))
        while best is not None:
            plans = (plan for cut in shifted(best.cut) if (plan := self.plan(cut)))
            step_s = best.step_s * (1 - 1e-9)
            quicker = next((plan for plan in plans if plan.step_s < step_s), None)
            if quicker is None:
                break
            best = quicker
        return best

    def near(self, cut: Cut) -> list[Candidate]:
        """Judge every cut with one layer moved.

        Args:
            cut: First and last layer of every stage.

        Returns:
            Those that fit, quickest first.
        """
        plans = [plan for near in shifted(cut) if (plan := self.plan(near))]
        return sorted(plans, key=lambda plan: plan.step_s)


def shifted(cut: Cut) -> Iterator[Cut]:
    """Every cut with one layer moved from a stage to another.

    Args:
        cut: First and last layer of every stage.

    Yields:
        The cuts; the samples may be cut between any two layers.
    """
    counts = [last + 1 - first for first, last in cut]
    for source, target in permutations(range(len(counts)), 2):
        changed = list(counts)
        changed[source] -= 1
        changed[target] += 1
        if changed[source]:
            yield cut_from_counts(changed)
