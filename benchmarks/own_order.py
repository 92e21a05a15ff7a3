"""What an order of our own gains: python benchmarks/own_order.py [--only TEXT].

Twelve cases: the sample profiles whose AdamW state fits 4 or 8 RTX 3090 of 24 GB
without leaving most of them empty, `max(8, 2 * cards)` microbatches of one
sequence of 2,048 tokens, the assumed links. Step time is simulated, optimizer
included. In each case every named schedule gets the best of many cuts, with no
recompute or all of it, in the memory of the cards; then our own order gets

    same cut   the cut, homes, recompute and memory of the best named schedule
    own cut    a cut of its own, sought in the same way, on the best placement

`bound` is what no order of the own cut can beat. No named order is given to our
own as a start, so what is gained here is gained by itself; `-` in front of a gain
means that taking the named one would have been better.
"""

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from planner.cards import Cluster
from planner.cluster import parse_cluster
from planner.errors import InfeasibleError
from planner.memory import activation_level, communication_bytes, stage_parameters
from planner.model_profile import ModelProfile, load_profile
from planner.optimizers import optimizer_spec
from planner.schedule.named import SCHEDULES, schedule_actions
from planner.schedule.placement import Placement, device_of_stage
from planner.simulate import StageTimes
from planner.solve.order.bound import bound_s
from planner.solve.order.clock import clock
from planner.solve.order.planned import NUM_EVALUATIONS, best_rows
from planner.solve.order.problem import (
    OrderProblem,
    Rows,
    fits,
    order_problem,
    rows_of,
)

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
NOTHING = math.inf

Counts = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model on some cards.

    Attributes:
        profile: Of the model.
        cluster: Its cards.
        placement: Where the stages are.
        stages_per_device: How many each card has.
        recompute: Whether every block is recomputed.
    """

    profile: ModelProfile
    cluster: Cluster
    placement: Placement
    stages_per_device: int
    recompute: bool

    @property
    def num_microbatches(self) -> int:
        """The default of `planner solve`."""
        return max(8, 2 * len(self.cluster))

    @property
    def homes(self) -> tuple[int, ...]:
        """Device of each stage."""
        return device_of_stage(
            self.placement, len(self.cluster), self.stages_per_device
        )

    def problem(self, counts: Counts) -> tuple[OrderProblem, float] | None:
        """Times and memory of a cut, and its optimizer step; None if it is too large.

        Args:
            counts: Layers of each stage.

        Returns:
            The problem and the optimizer step of the slowest device [s].
        """
        layers, spec = self.profile.layers, optimizer_spec("adamw", "bfloat16")
        ends = [sum(counts[: s + 1]) for s in range(len(counts))]
        runs = [range(e - c, e) for c, e in zip(counts, ends, strict=True)]
        again = [self.recompute and 0 < i < len(layers) - 1 for i in range(len(layers))]
        times, kept, peaks, buffers = [], [], [], []
        for run in runs:
            own = [layers[i] for i in run]
            again_s = sum(layers[i].again_s for i in run if again[i])
            sent = own[-1].output_bytes if run[-1] < len(layers) - 1 else 0
            received = layers[run[0] - 1].output_bytes if run[0] else 0
            link = self.cluster.link_after(0)
            times.append(
                StageTimes(
                    forward_s=sum(x.forward_s for x in own),
                    backward_s=sum(x.backward_s for x in own) + again_s,
                    input_grad_s=sum(x.input_grad_s for x in own) + again_s,
                    weight_grad_s=sum(x.weight_grad_s for x in own),
                    send_forward_s=link.transfer_s(sent),
                    send_backward_s=link.transfer_s(received),
                )
            )
            level, highest = activation_level(own, [again[i] for i in run])
            kept.append(level)
            peaks.append(highest - level)
            buffers.append(
                communication_bytes(
                    num_microbatches=self.num_microbatches,
                    input_bytes=received,
                    output_bytes=sent,
                )
            )
        rooms, steps_s = [], []
        rate_s = self.profile.device.optimizer_s_per_parameter["adamw"]
        for device, card in enumerate(self.cluster.devices):
            here = [s for s, home in enumerate(self.homes) if home == device]
            own = [layers[i] for s in here for i in runs[s]]
            parameters = stage_parameters(own, self.profile.ties)
            used = parameters * spec.bytes_per_parameter + card.reserve_bytes
            used += max(peaks[s] for s in here) + sum(buffers[s] for s in here)
            rooms.append(card.memory_bytes - used)
            steps_s.append(parameters * rate_s)
        try:
            problem = order_problem(
                times,
                self.homes,
                self.num_microbatches,
                room_bytes=rooms,
                kept_bytes=kept,
            )
        except InfeasibleError:
            return None
        return problem, max(steps_s)


def judge(case: Case, rows: Rows, counts: Counts) -> float:
    """Simulated step time of an order with a cut.

    Args:
        case: The model and the cards.
        rows: The order.
        counts: Layers of each stage.

    Returns:
        The time, infinite if it does not fit [s].
    """
    found = case.problem(counts)
    if found is None:
        return NOTHING
    problem, optimizer_s = found
    if not all(fits(problem, d, row) for d, row in enumerate(rows)):
        return NOTHING
    return clock(problem, rows).makespan_s + optimizer_s


def shifted(counts: Counts) -> Iterator[Counts]:
    """Every cut with one layer moved from a stage to another.

    Args:
        counts: Layers of each stage.

    Yields:
        Such cuts.
    """
    for source, count in enumerate(counts):
        for target in range(len(counts)):
            if source != target and count > 1:
                changed = list(counts)
                changed[source] -= 1
                changed[target] += 1
                yield tuple(changed)


def climb(case: Case, rows: Rows, counts: Counts) -> tuple[float, Counts]:
    """Move layers as long as the step gets shorter.

    Args:
        case: The model and the cards.
        rows: The order, which stays.
        counts: Where to start.

    Returns:
        Step time [s] and cut.
    """
    best = judge(case, rows, counts), counts
    improved = True
    while improved:
        improved = False
        for changed in shifted(best[1]):
            step_s = judge(case, rows, changed)
            if step_s < best[0] * (1 - 1e-9):
                best, improved = (step_s, changed), True
                break
    return best


def first_cuts(case: Case) -> list[Counts]:
    """Cuts to start from.

    Args:
        case: The model and the cards.

    Returns:
        Even layers, stages of even time, and V with the head's stage thin.
    """
    times_s = [x.forward_s + x.backward_s for x in case.profile.layers]
    num_stages, num_layers = len(case.homes), len(times_s)
    even = tuple(
        (s + 1) * num_layers // num_stages - s * num_layers // num_stages
        for s in range(num_stages)
    )
    cuts = [even]
    for target_s in (sum(times_s) / num_stages,):
        counts, open_s, total = [0] * num_stages, 0.0, 0
        stage = 0
        for index, time_s in enumerate(times_s):
            left = num_layers - index
            full = open_s + time_s / 2 > target_s * (stage + 1)
            if stage < num_stages - 1 and counts[stage]:
                if full or left <= num_stages - 1 - stage:
                    stage += 1
            counts[stage] += 1
            open_s += time_s
            total += 1
        if all(counts):
            cuts.append(tuple(counts))
    return cuts


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


def named_answers(cases: list[Case]) -> list[Answer]:
    """The best cut of every named schedule.

    Args:
        cases: Placements and recompute choices.

    Returns:
        Those that fit.
    """
    answers = []
    for case in cases:
        for name, schedule in SCHEDULES.items():
            per_device, cards = case.stages_per_device, len(case.cluster)
            if schedule.problem(cards, case.num_microbatches, per_device):
                continue
            if per_device > 1 and schedule.placement != case.placement:
                continue
            rows = rows_of(
                schedule_actions(name, cards, case.num_microbatches, per_device)
            )
            for start in first_cuts(case):
                step_s, counts = climb(case, rows, start)
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
        found = case.problem(counts)
        if found is None:
            break
        problem, optimizer_s = found
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
    answers = sorted(named_answers(cases), key=lambda a: a.step_s)
    named = answers[0]
    same = own_answer(
        named.case, named.counts, num_evaluations=NUM_EVALUATIONS, num_rounds=0
    )
    quick = [same]
    for case in cases:
        starts = [a.counts for a in answers if a.case == case]
        starts += [a.counts for a in answers if a.case.homes == case.homes]
        for counts in list(dict.fromkeys([*starts[:2], *first_cuts(case)]))[:3]:
            quick.append(own_answer(case, counts, num_evaluations=0, num_rounds=3))
    quick.sort(key=lambda a: a.step_s)
    own = [
        own_answer(a.case, a.counts, num_evaluations=NUM_EVALUATIONS, num_rounds=2)
        for a in quick[:2]
    ]
    return named, same, min([same, *own], key=lambda a: a.step_s)


def main() -> None:
    """Print one line a case and the geometric means."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    only = parser.parse_args().only
    gains: list[tuple[float, float, float]] = []
    print(
        f"{'case':20} {'best named':>24} {'same cut':>16} {'own cut':>24} {'bound':>8}"
    )
    for name, num_cards in CASES:
        if only not in f"{name} x{num_cards}":
            continue
        started = time.perf_counter()
        profile = load_profile(PROFILES / f"{name}-rtx3090.json")
        named, same, own = compare(profile, num_cards)
        gains.append(
            tuple(named.step_s / x for x in (same.step_s, own.step_s, own.bound_s))
        )
        marks = ["+re" * a.case.recompute for a in (named, own)]
        print(
            f"{name:16} x{num_cards:<2}"
            f"{named.name + marks[0]:>16} {named.step_s * 1e3:7.1f} ms"
            f"{same.step_s * 1e3:9.1f} {gains[-1][0] - 1:+6.1%}"
            f"{own.name + marks[1]:>9} {own.step_s * 1e3:7.1f} {gains[-1][1] - 1:+6.1%}"
            f"{own.bound_s * 1e3:9.1f}   {time.perf_counter() - started:.0f} s",
            flush=True,
        )
    means = [
        math.prod(column) ** (1 / len(gains)) for column in zip(*gains, strict=True)
    ]
    print(
        f"geometric mean: same cut {means[0] - 1:+.1%}, own cut {means[1] - 1:+.1%}; "
        f"the bound of the own cuts allows {means[2] - 1:+.1%}"
    )


if __name__ == "__main__":
    main()
