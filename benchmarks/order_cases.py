"""Models on cards for `own_order.py`: times, memory and cuts, without the search."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from planner.cards import Cluster
from planner.memory import (
    layer_levels,
    levels_of,
    receive_buffer_bytes,
    stage_parameters,
)
from planner.model_profile import ModelProfile
from planner.optimizers import optimizer_spec
from planner.schedule.placement import Placement, device_of_stage
from planner.simulate import StageTimes
from planner.solve.order.clock import clock
from planner.solve.order.problem import OrderProblem, Rows, order_problem

NOTHING = math.inf
# Layers of each stage.
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

    @cached_property
    def homes(self) -> tuple[int, ...]:
        """Device of each stage."""
        return device_of_stage(
            self.placement, len(self.cluster), self.stages_per_device
        )

    @cached_property
    def again(self) -> tuple[bool, ...]:
        """Which layers are recomputed: all blocks or none."""
        last = len(self.profile.layers) - 1
        return tuple(self.recompute and 0 < i < last for i in range(last + 1))

    def problem(self, counts: Counts) -> tuple[OrderProblem, float]:
        """Times and memory of a cut, which may be too large, and its optimizer step.

        Args:
            counts: Layers of each stage.

        Returns:
            The problem and the optimizer step of the slowest device [s].
        """
        ends = [sum(counts[: s + 1]) for s in range(len(counts))]
        runs = [range(e - c, e) for c, e in zip(counts, ends, strict=True)]
        stages = [self._stage(run) for run in runs]
        rooms, steps_s = [], []
        per_parameter = optimizer_spec("adamw", "bfloat16").bytes_per_parameter
        rate_s = self.profile.device.optimizer_s_per_parameter["adamw"]
        for device, card in enumerate(self.cluster.devices):
            here = [s for s, home in enumerate(self.homes) if home == device]
            own = [self.profile.layers[i] for s in here for i in runs[s]]
            parameters = stage_parameters(own, self.profile.ties)
            used = parameters * per_parameter + card.reserve_bytes
            used += max(stages[s][2] for s in here) + sum(stages[s][3] for s in here)
            rooms.append(card.memory_bytes - used)
            steps_s.append(parameters * rate_s)
        problem = order_problem(
            [times for times, *_ in stages],
            self.homes,
            self.num_microbatches,
            kept_bytes=[kept for _, kept, *_ in stages],
        )
        return dataclasses.replace(problem, room_bytes=tuple(rooms)), max(steps_s)

    def _stage(self, run: range) -> tuple[StageTimes, int, int, int]:
        """Times, kept bytes, workspace and buffers of a run of layers."""
        layers, again = self.profile.layers, self.again
        own = [layers[i] for i in run]
        again_s = sum(layers[i].again_s for i in run if again[i])
        sent = own[-1].output_bytes if run[-1] < len(layers) - 1 else 0
        received = layers[run[0] - 1].output_bytes if run[0] else 0
        link = self.cluster.link_after(0)
        times = StageTimes(
            forward_s=sum(x.forward_s for x in own),
            backward_s=sum(x.backward_s for x in own) + again_s,
            input_grad_s=sum(x.input_grad_s for x in own) + again_s,
            weight_grad_s=sum(x.weight_grad_s for x in own),
            send_forward_s=link.transfer_s(sent),
            send_backward_s=link.transfer_s(received),
        )
        levels = levels_of(layer_levels(layers[i], again[i]) for i in run)
        kept = levels.kept_bytes
        highest = max(levels.forward_bytes, levels.backward_bytes)
        # What is sent counts from the start of the step.
        buffers = 2 * receive_buffer_bytes(
            num_microbatches=self.num_microbatches,
            input_bytes=received,
            output_bytes=sent,
        )
        return times, kept, highest - kept, buffers

    def score(
        self, rows: Rows, counts: Counts, *, limit_s: float = NOTHING
    ) -> tuple[float, float]:
        """How good an order with a cut is; smaller is better.

        Args:
            rows: The order.
            counts: Layers of each stage.
            limit_s: Slower ones are of no interest [s].

        Returns:
            By how much all devices together miss their room [bytes], and the
            simulated step time; infinite if of no interest [s].
        """
        problem, optimizer_s = self.problem(counts)
        excess = sum(
            max(max(accumulate(problem.growth_bytes[c] for c in row)) - room, 0.0)
            for row, room in zip(rows, problem.room_bytes, strict=True)
        )
        if excess:
            return excess, NOTHING
        makespan_s = clock(problem, rows, limit_s=limit_s - optimizer_s).makespan_s
        return 0.0, makespan_s + optimizer_s


def is_possible(problem: OrderProblem) -> bool:
    """Whether one microbatch fits every device.

    Args:
        problem: Times, homes and memory.

    Returns:
        False if there is no order at all.
    """
    rooms = zip(problem.stages, problem.room_bytes, strict=True)
    return all(sum(problem.kept_bytes[s] for s in own) <= room for own, room in rooms)


def first_cuts(case: Case) -> list[Counts]:
    """Cuts to start from.

    Args:
        case: The model and the cards.

    Returns:
        As many layers in every stage, and as much time.
    """
    times_s = [x.forward_s + x.backward_s for x in case.profile.layers]
    cuts = []
    for weights in ([1.0] * len(times_s), times_s):
        num_stages, total = len(case.homes), sum(weights)
        counts, done, stage = [0] * num_stages, 0.0, 0
        for index, weight in enumerate(weights):
            full = done + weight / 2 > total * (stage + 1) / num_stages
            must = len(weights) - index <= num_stages - 1 - stage
            if stage < num_stages - 1 and counts[stage] and (full or must):
                stage += 1
            counts[stage] += 1
            done += weight
        if all(counts):
            cuts.append(tuple(counts))
    return list(dict.fromkeys(cuts))


def climb(case: Case, rows: Rows, counts: Counts) -> tuple[float, Counts]:
    """Move layers until the order fits, then as long as the step gets shorter.

    Args:
        case: The model and the cards.
        rows: The order, which stays.
        counts: Where to start.

    Returns:
        Step time, infinite if nothing near fits [s], and cut.
    """
    best = case.score(rows, counts)
    improved = True
    while improved:
        improved = False
        for changed in _shifted(counts):
            score = case.score(rows, changed, limit_s=best[1])
            if score < (best[0], best[1] * (1 - 1e-9)):
                best, counts, improved = score, changed, True
                break
    return best[1], counts


def _shifted(counts: Counts) -> Iterator[Counts]:
    """Every cut with one layer moved from a stage to another."""
    for source, count in enumerate(counts):
        for target in range(len(counts)):
            if source != target and count > 1:
                changed = list(counts)
                changed[source] -= 1
                changed[target] += 1
                yield tuple(changed)
