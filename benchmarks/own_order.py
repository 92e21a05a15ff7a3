"""What an order of our own gains: python benchmarks/own_order.py [--only TEXT].

Twelve cases: sample profiles whose AdamW state fits on 4 or 8 RTX 3090 of 24 GB,
`max(8, 2 * cards)` microbatches of one sequence of 2,048 tokens, the assumed
links. Step time is simulated, optimizer included. In each case every named
schedule gets the best of many cuts (layers are moved as long as that helps, from
several starts, the own order's final cut among them), with no recompute or all of
it, in the memory of the cards; our own order gets

    same cut   the cut, homes, recompute and memory of the best named schedule
    own cut    the best placement, and a cut sought in the same way

`bound` is what no order of the own cut can beat. No named order is given to our
own as a start, so what is gained here is gained by itself.
"""

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path

from order_cases import NOTHING, Case, Counts, climb, first_cuts, is_possible

from planner.cluster import parse_cluster
from planner.model_profile import ModelProfile, load_profile
from planner.schedule.named import SCHEDULES, schedule_actions
from planner.schedule.placement import Placement
from planner.solve.order.bound import bound_s
from planner.solve.order.clock import clock
from planner.solve.order.planned import NUM_EVALUATIONS, best_rows
from planner.solve.order.problem import rows_of

PROFILES = Path(__file__).parents[1] / "profiles"
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
PLACEMENTS: tuple[tuple[Placement, int], ...] = (("loop", 1), ("v", 2), ("loop", 2))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The best that was found in one way.

    Attributes:
        step_s: Simulated [s].
        name: Of the schedule or placement.
        case: In which it was found.
        counts: Layers of each stage.
        bound_s: What no order of this cut beats [s].
    """

    step_s: float
    name: str
    case: Case
    counts: Counts
    bound_s: float = 0.0

    @property
    def title(self) -> str:
        """The name, and whether blocks are recomputed."""
        return self.name + "+re" * self.case.recompute


def named_answers(case: Case, starts: list[Counts]) -> list[Answer]:
    """The best cut of every named schedule of a placement.

    Args:
        case: The model and the cards.
        starts: Cuts to start from.

    Returns:
        Those that fit.
    """
    answers = []
    per_device, cards = case.stages_per_device, len(case.cluster)
    for name, schedule in SCHEDULES.items():
        if schedule.problem(cards, case.num_microbatches, per_device):
            continue
        if per_device > 1 and schedule.placement != case.placement:
            continue
        actions = schedule_actions(name, cards, case.num_microbatches, per_device)
        for start in starts:
            step_s, counts = climb(case, rows_of(actions), start)
            if step_s < NOTHING:
                answers.append(
                    Answer(step_s=step_s, name=name, case=case, counts=counts)
                )
    return answers


def own_answer(
    case: Case, counts: Counts, *, num_evaluations: int, num_rounds: int
) -> Answer:
    """Our own order, and the cut that suits it, in turn.

    Args:
        case: The model and the cards.
        counts: Where to start.
        num_evaluations: For each order.
        num_rounds: How often the cut may follow the order; 0 leaves it.

    Returns:
        The best that was found.
    """
    best = Answer(step_s=NOTHING, name="", case=case, counts=counts)
    for _ in range(num_rounds + 1):
        problem, optimizer_s = case.problem(counts)
        if not is_possible(problem):
            break
        rows = best_rows(problem, [], num_evaluations=num_evaluations)
        step_s = clock(problem, rows).makespan_s + optimizer_s
        if step_s >= best.step_s * (1 - 1e-4):
            break
        best = Answer(
            step_s=step_s,
            name=f"{case.placement}{case.stages_per_device}",
            case=case,
            counts=counts,
            bound_s=bound_s(problem) + optimizer_s,
        )
        if num_rounds:
            _, counts = climb(case, rows, counts)
    return best


def compare(profile: ModelProfile, num_cards: int) -> tuple[Answer, Answer, Answer]:
    """Best named schedule, own order on its cut, own order and cut.

    Args:
        profile: Of the model.
        num_cards: How many cards like the profile's.

    Returns:
        The three answers.
    """
    cluster = parse_cluster(str(num_cards), profile)
    cases = [
        Case(
            profile=profile,
            cluster=cluster,
            placement=placement,
            stages_per_device=per_device,
            recompute=recompute,
        )
        for placement, per_device in PLACEMENTS
        for recompute in (False, True)
        if num_cards * per_device <= len(profile.layers)
    ]
    named = [a for case in cases for a in named_answers(case, first_cuts(case))]
    named.sort(key=lambda a: a.step_s)
    quick = []
    for case in cases:
        starts = [a.counts for a in named if a.case.homes == case.homes][:2]
        for counts in dict.fromkeys([*starts, *first_cuts(case)]):
            quick.append(own_answer(case, counts, num_evaluations=0, num_rounds=3))
    quick.sort(key=lambda a: a.step_s)
    own = min(
        (
            own_answer(a.case, a.counts, num_evaluations=NUM_EVALUATIONS, num_rounds=2)
            for a in quick[:3]
        ),
        key=lambda a: a.step_s,
    )
    named += named_answers(own.case, [own.counts])
    best = min(named, key=lambda a: a.step_s)
    same = own_answer(
        best.case, best.counts, num_evaluations=NUM_EVALUATIONS, num_rounds=0
    )
    return best, same, min(own, same, key=lambda a: a.step_s)


def main() -> None:
    """Print one line a case and the geometric means."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    only = parser.parse_args().only
    gains = []
    print(f"{'case':20}{'best named':>30}{'same cut':>18}{'own cut':>26}{'bound':>9}")
    for name, num_cards in CASES:
        if only not in f"{name} x{num_cards}":
            continue
        started = time.perf_counter()
        profile = load_profile(PROFILES / f"{name}-rtx3090.json")
        named, same, own = compare(profile, num_cards)
        gains.append([named.step_s / x for x in (same.step_s, own.step_s, own.bound_s)])
        print(
            f"{name:16} x{num_cards:<2}"
            f"{named.title:>20} {named.step_s * 1e3:6.0f} ms"
            f"{same.step_s * 1e3:8.0f} ms {gains[-1][0] - 1:+6.1%}"
            f"{own.title:>9} {own.step_s * 1e3:6.0f} ms {gains[-1][1] - 1:+6.1%}"
            f"{own.bound_s * 1e3:6.0f} ms   {time.perf_counter() - started:.0f} s",
            flush=True,
        )
    same_, own_, bound_ = (
        math.prod(column) ** (1 / len(gains)) - 1 for column in zip(*gains, strict=True)
    )
    print(
        f"geometric mean: same cut {same_:+.1%}, own cut {own_:+.1%}; "
        f"the bound of the own cuts allows {bound_:+.1%}"
    )


if __name__ == "__main__":
    main()
