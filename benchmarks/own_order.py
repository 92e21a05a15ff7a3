"""What an order of our own gains: python benchmarks/own_order.py [--only TEXT].

Twelve cases: the sample profiles whose AdamW state fits on 4 or 8 RTX 3090 of 24 GB,
`max(8, 2 * cards)` microbatches of one sequence of 2,048 tokens, bfloat16, the assumed
links. Times, memory and recompute are those of `planner solve`; step time is
simulated, optimizer included. In the memory of the cards

    named    the best of all named schedules with one or two stages a card: each is
             searched by itself, then gets the cuts that suit the others and the one of
             `solve`, and its layers are moved as long as that helps, without a limit
             of time
    order    the same cut and recompute in an order of our own
    solve    what `planner solve` answers, in its own time

`floor` is what no order of any cut can beat: all work shared out evenly.
"""

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path

from planner.cluster import parse_cluster
from planner.model_profile import load_profile
from planner.plan import Plan, ProfileRef
from planner.solve import Wishes, best_plan
from planner.solve.candidate import Candidate
from planner.solve.moved_layers import quickest
from planner.solve.own_order import least_step_s, with_own_order
from planner.solve.search import search
from planner.solve.setting import Cut, Setting
from planner.solve.settings import settings_of
from planner.solve.shared_cuts import with_shared_cuts

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
# What the search of one named schedule may take before its layers are moved.
SEARCH_S = 5.0
WISHES = Wishes(microbatch_size=1, optimizer="adamw")


def best_named(settings: Sequence[Setting], cut: Cut) -> Candidate:
    """The best plan of all named schedules.

    Args:
        settings: Of each schedule.
        cut: One more to start from.

    Returns:
        The quickest found.
    """
    found = [search(x, deadline=time.monotonic() + SEARCH_S).own for x in settings]
    plans = [plan for plan in found if plan]
    best = quickest(plans)
    while True:
        cuts = [cut, *(plan.cut for plan in plans)]
        plans = with_shared_cuts(settings, cuts, deadline=math.inf)
        better = quickest(plans)
        if better is None:
            msg = "no named schedule fits"
            raise ValueError(msg)
        if best and better.step_s >= best.step_s * (1 - 1e-9):
            return best
        best = better


def compare(name: str, num_cards: int) -> tuple[Candidate, Plan, float]:
    """The best named schedule and what `planner solve` answers.

    Args:
        name: Of the sample profile.
        num_cards: How many cards like the profile's.

    Returns:
        The two plans, and what no order of any cut can beat [s].
    """
    profile = load_profile(PROFILES / f"{name}-rtx3090.json")
    cluster = parse_cluster(str(num_cards), profile)
    reference = ProfileRef(path=name, sha256="")
    plan = best_plan(profile, cluster, WISHES, profile_ref=reference)
    settings = settings_of(profile, cluster, WISHES)
    cut = tuple((stage.first_layer, stage.last_layer) for stage in plan.stages)
    return best_named(settings, cut), plan, least_step_s(settings[0], WISHES)


def title(schedule: str, stages_per_card: int, num_recomputed: int) -> str:
    """What a plan is, in few words."""
    return f"{schedule} x{stages_per_card} re{num_recomputed}"


def mean_gain(ratios: Sequence[float]) -> float:
    """By how much the geometric mean of some ratios is above 1."""
    return math.prod(ratios) ** (1 / len(ratios)) - 1


def main() -> None:
    """Print one line a case and the geometric means."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    only = parser.parse_args().only
    ratios = []
    print(f"{'case':20}{'named':>32}{'order':>18}{'solve':>34}{'floor':>19}")
    for name, num_cards in CASES:
        if only not in f"{name} x{num_cards}":
            continue
        named, plan, floor_s = compare(name, num_cards)
        order_s = (with_own_order(named) or named).step_s
        solve_s = plan.predicted.step_s
        ratios.append([named.step_s / x for x in (order_s, solve_s, floor_s)])
        order, solve, _ = ratios[-1]
        setting, again = named.setting, sum(map(len, named.recompute))
        named_title = title(setting.schedule, setting.stages_per_device, again)
        again = sum(len(stage.recompute) for stage in plan.stages)
        solve_title = title(plan.schedule.name, len(plan.stages) // num_cards, again)
        print(
            f"{name:16} x{num_cards:<2}{named_title:>23} {named.step_s * 1e3:5.0f} ms"
            f"{order_s * 1e3:8.0f} ms {order - 1:+6.1%}"
            f"{solve_title:>17} {solve_s * 1e3:6.0f} ms {solve - 1:+6.1%}"
            f"{floor_s * 1e3:7.0f} ms  solved in {plan.solver.solve_s:.1f} s",
            flush=True,
        )
    order, solve, floor = map(mean_gain, zip(*ratios, strict=True))
    print(
        f"geometric mean of {len(ratios)} cases: same cut {order:+.1%}, "
        f"solve {solve:+.1%}; the floor allows {floor:+.1%}"
    )


if __name__ == "__main__":
    main()
