"""What an order of our own gains: python benchmarks/own_order.py [--only TEXT].

Twelve cases: the sample profiles whose AdamW state fits on 4 or 8 RTX 3090 of 24 GB,
`max(8, 2 * cards)` microbatches of one sequence of 2,048 tokens, bfloat16, the assumed
links. Times, memory and recompute are those of `planner solve`; step time is
simulated, optimizer included. In the memory of the cards

    named      the best of all named schedules with one or two stages a card: each gets
               the cut that the solver finds, and those that suit the others and our own
               orders best, and the best of these is made better layer by layer
    same cut   cut, homes and recompute of `named` in an order of our own, which starts
               from the named order
    own cut    the best order of our own: an order is made for a cut, then a cut sought
               for the order in the same way, in turn, from the best named plan of each
               placement; in the end cuts with one layer moved get orders of their own.
               `planner solve` gives orders to the best two cuts only

`floor` is what no order of any cut can beat: all work shared out evenly.
"""

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from order_cases import CASES, settings_of_case

from planner.solve.candidate import Candidate
from planner.solve.moved_layers import NearCuts, quickest
from planner.solve.own_order import least_step_s, with_own_order
from planner.solve.search import search
from planner.solve.setting import Cut, Setting
from planner.solve.wishes import Wishes

# How many cuts may be given an order of our own, from one start.
MOST_ORDERS = 20
# How many of those with one layer moved, before their order is taken as the best.
NUM_NEAR = 8
# What is slower than the best by more than this is not searched further.
HOPELESS = 1.05
# What the solver may take to find a cut for one schedule.
TIME_LIMIT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was found for one case.

    Attributes:
        named: The best plan of a named schedule.
        same_cut: The same cut in an order of our own.
        own_cut: The best order of our own.
    """

    named: Candidate
    same_cut: Candidate
    own_cut: Candidate

    @property
    def steps_s(self) -> tuple[float, float, float, float]:
        """Step times of the three, and what no order of any cut can beat [s]."""
        plans = (self.named, self.same_cut, self.own_cut)
        named_s, same_s, own_s = (plan.step_s for plan in plans)
        return named_s, same_s, own_s, least_step_s(self.named.setting, Wishes())


def searched(settings: Sequence[Setting]) -> list[Candidate]:
    """The best plan that the solver finds for every named schedule.

    Args:
        settings: Of each schedule.

    Returns:
        Of those schedules that fit.
    """
    found = [
        search(setting, deadline=time.monotonic() + TIME_LIMIT_S).own
        for setting in settings
    ]
    return [plan for plan in found if plan is not None]


def named_plans(every: Sequence[NearCuts], starts: Sequence[Cut]) -> list[Candidate]:
    """The best plan of every named schedule, its layers moved.

    Args:
        every: Of each schedule.
        starts: Cuts to begin with.

    Returns:
        Of those schedules that fit.
    """
    return [found for cuts in every if (found := cuts.best(starts))]


def own_plan(start: Candidate, *, num_near: int = 0) -> Candidate | None:
    """An order for a cut, a cut for the order, in turn.

    Args:
        start: A cut in any order.
        num_near: How many cuts with one layer moved are given an order of their own,
            too, where none is better in the order of before.

    Returns:
        The quickest found; None if no order of our own fits.
    """
    best = with_own_order(start)
    tried: set[Cut] = {start.cut}
    while best is not None and len(tried) < MOST_ORDERS:
        cuts = NearCuts(best.setting)
        plans = [plan for plan in [cuts.best([best.cut])] if plan]
        plans += cuts.near(best.cut)[:num_near]
        before_s = best.step_s
        for plan in plans:
            if plan.cut not in tried:
                tried.add(plan.cut)
                best = quickest(x for x in (best, with_own_order(plan)) if x) or best
            if best.step_s < before_s * (1 - 1e-4):
                break
        else:
            break
    return best


def compare(name: str, num_cards: int) -> Answer:
    """Best named schedule, own order on its cut, own order and cut.

    Args:
        name: Of the sample profile.
        num_cards: How many cards like the profile's.

    Returns:
        The three plans.
    """
    settings = settings_of_case(name, num_cards)
    every = [NearCuts(setting) for setting in settings]
    named = named_plans(every, [plan.cut for plan in searched(settings)])
    homes = dict.fromkeys(plan.setting.home for plan in named)
    starts = [quickest(p for p in named if p.setting.home == home) for home in homes]
    own = [plan for start in starts if start and (plan := own_plan(start))]
    limit_s = min((plan.step_s for plan in own), default=0.0) * HOPELESS
    own += [
        plan
        for first in own
        if first.step_s <= limit_s and (plan := own_plan(first, num_near=NUM_NEAR))
    ]
    best = quickest([*named, *named_plans(every, [plan.cut for plan in own])])
    if best is None:
        msg = f"no named schedule fits {name} on {num_cards} cards"
        raise ValueError(msg)
    same_cut = with_own_order(best) or best
    own_cut = quickest([same_cut, *own]) or same_cut
    return Answer(named=best, same_cut=same_cut, own_cut=own_cut)


def title(plan: Candidate) -> str:
    """What a plan is, in few words.

    Args:
        plan: Of any order.

    Returns:
        Schedule, placement, stages a card, and how many layers are recomputed.
    """
    setting, again = plan.setting, sum(map(len, plan.recompute))
    where = f"{setting.placement}{setting.stages_per_device}"
    return f"{setting.schedule} {where} re{again}"


def main() -> None:
    """Print one line a case and the geometric means."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    only = parser.parse_args().only
    gains = []
    print(f"{'case':20}{'named':>35}{'same cut':>18}{'own cut':>34}{'floor':>10}")
    for name, num_cards in CASES:
        if only not in f"{name} x{num_cards}":
            continue
        started = time.perf_counter()
        answer = compare(name, num_cards)
        named_s, *others_s = answer.steps_s
        same_s, own_s, floor_s = others_s
        same, own, _ = gain = [named_s / other_s for other_s in others_s]
        gains.append(gain)
        print(
            f"{name:16} x{num_cards:<2}"
            f"{title(answer.named):>26} {named_s * 1e3:5.0f} ms"
            f"{same_s * 1e3:8.0f} ms {same - 1:+6.1%}"
            f"{title(answer.own_cut):>17} {own_s * 1e3:6.0f} ms {own - 1:+6.1%}"
            f"{floor_s * 1e3:7.0f} ms   {time.perf_counter() - started:.0f} s",
            flush=True,
        )
    same, own, floor = (
        math.prod(column) ** (1 / len(gains)) - 1 for column in zip(*gains, strict=True)
    )
    print(
        f"geometric mean of {len(gains)} cases: same cut {same:+.1%}, "
        f"own cut {own:+.1%}; the floor allows {floor:+.1%}"
    )


if __name__ == "__main__":
    main()
