"""The peak of one order for many cuts: its states that can be the fullest.

While an action runs, the level of a device is a sum of products: of each of its
stages the microbatches that are kept and held, times what one of them takes, and
the rise of what runs. All of these are at least 0, so a state that has no more of
anything than another one is never fuller. What is left is a handful of states for
a row of hundreds of actions, found once for an order; a cut is then judged by a few
products. Under 1F1B with 4 microbatches in flight:

    kept  held  back  F  B  I  W
      3     0     0   1  0  0  0
      4     0     0   0  1  0  0

`back` counts the gradients that a next stage on the same device has handed back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul

from planner.memory.device_bytes import (
    action_bytes,
    handed_on_bytes,
    static_memory,
)
from planner.memory.stage_bytes import StageBytes
from planner.schedule.actions import Action
from planner.schedule.named import num_microbatches_of
from planner.schedule.validate import KINDS

# What is kept and held more after an action.
_CHANGES = {"F": (1, 0), "B": (-1, 0), "I": (-1, 1), "W": (0, -1)}
_NUM_TERMS = 3 + len(KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakStates:
    """All that decides the peak of one device under one order.

    Attributes:
        stages: The stages of the device, ascending.
        states: Each state as factors of the `terms`; none has no more of anything
            than another.
        num_microbatches: Of one step.
    """

    stages: tuple[int, ...]
    states: tuple[tuple[int, ...], ...]
    num_microbatches: int

    def terms(self, stages: Mapping[int, StageBytes]) -> tuple[int, ...]:
        """What a state's factors are multiplied with.

        Args:
            stages: Memory of the device's stages by stage number.

        Returns:
            Per stage, ascending: kept, held, handed back, and the rise of F, B, I
            and W [bytes].
        """
        effects = action_bytes(stages)
        terms: list[int] = []
        for stage in self.stages:
            back = handed_on_bytes(stages, stage)
            terms += [stages[stage].kept_bytes + back, stages[stage].held_bytes, back]
            terms += [effects[stage, kind][1] for kind in KINDS]
        return tuple(terms)

    def peak_bytes(
        self, stages: Mapping[int, StageBytes], reserve_bytes: int = 0
    ) -> int:
        """The highest level of the device.

        Args:
            stages: Memory of its stages by stage number.
            reserve_bytes: Kept free on the card [bytes].

        Returns:
            The same as `over_time.peak_bytes` of the whole row [bytes].
        """
        terms = self.terms(stages)
        levels = (sum(map(mul, state, terms)) for state in self.states)
        highest = max(levels, default=0)
        static = static_memory(stages, self.num_microbatches, reserve_bytes)
        return static.total + highest


def peak_states(row: Sequence[Action]) -> PeakStates:
    """Find the states that can be the fullest.

    Args:
        row: Actions of one device, in order.

    Returns:
        Those of its states that no other one dominates.
    """
    stages = sorted({action.stage for action in row})
    offset = {stage: _NUM_TERMS * place for place, stage in enumerate(stages)}
    now = [0] * (_NUM_TERMS * len(stages))
    fullest: dict[int, list[tuple[int, ...]]] = {}
    seen: set[tuple[int, ...]] = set()
    for action in row:
        base = offset[action.stage]
        running = base + 3 + KINDS.index(action.kind)
        now[running] = 1
        rivals = fullest.setdefault(running, [])
        state = tuple(now)
        if state not in seen and not any(_covers(rival, state) for rival in rivals):
            rivals[:] = [rival for rival in rivals if not _covers(state, rival)]
            rivals.append(state)
        seen.add(state)
        now[running] = 0
        kept, held = _CHANGES[action.kind]
        now[base] += kept
        now[base + 1] += held
        if action.kind in "BI":
            now[base + 2] -= 1 if action.stage + 1 in offset else 0
            if action.stage - 1 in offset:
                now[offset[action.stage - 1] + 2] += 1
    return PeakStates(
        stages=tuple(stages),
        states=tuple(state for rivals in fullest.values() for state in rivals),
        num_microbatches=num_microbatches_of((tuple(row),)),
    )


def _covers(state: Sequence[int], other: Sequence[int]) -> bool:
    return all(here >= there for here, there in zip(state, other, strict=True))
