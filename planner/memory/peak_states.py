"""The peak of one order for many cuts: its states that can be the fullest.

While an action runs, the level of a device is a sum of products: how many microbatches
of each stage are kept, held or on their way, times what one of them takes, and the
rise of what runs. All of these are at least 0, so a state that has no more of anything
than another one is never fuller; nor is one halfway between two others. What is left
is a handful of states for a row of hundreds of actions, found once for an order; a cut
is then judged by a few products. Under 1F1B with 4 microbatches in flight, 8 in all, on
a device in the middle:

    kept  held  out  back  in  gradients   runs
      3     0    7     0    4      1       F of the last microbatch
      4     0    4     0    0      0       the first B, which makes the gradients
      4     0    8     0    4      1       the last B with all in flight
      1     0    8     0    7      1       the last B
      0     0    0     0    8      1       the optimizer's step

`out` and `in` count the outputs and the gradients of inputs that are on their way to
other devices or, outputs only, handed on within the device; `back` the gradients that
a next stage on the same device has handed back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul

from planner.memory.device_bytes import (
    action_effects,
    handed_on_bytes,
    held_bytes,
    left_for_step,
    sent_bytes,
    static_memory,
    with_gradients_made,
)
from planner.memory.stage_bytes import StageBytes
from planner.schedule.actions import Action, Kind
from planner.schedule.named import num_microbatches_of

# What can run: kind of action, and whether it makes the gradients.
_RUNS: tuple[tuple[Kind, bool], ...] = (
    ("F", False),
    ("B", False),
    ("B", True),
    ("I", False),
    ("W", False),
    ("W", True),
)
KEPT, HELD, OUT, BACK, IN, GRADIENTS = range(6)
RUNS = {run: GRADIENTS + 1 + place for place, run in enumerate(_RUNS)}
STEP = GRADIENTS + 1 + len(_RUNS)
NUM_TERMS = STEP + 1
# What is kept and held more after an action.
_CHANGES = {"F": (1, 0), "B": (-1, 0), "I": (-1, 1), "W": (0, -1)}


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
            `NUM_TERMS` per stage, stages ascending: kept, held, output, handed back,
            sent gradient of the input, gradients, the rise of every action and of
            the optimizer's step [bytes].
        """
        effects = action_effects(stages)
        terms: list[int] = []
        for stage in self.stages:
            own = stages[stage]
            terms += [own.kept_bytes, held_bytes(stages, stage), own.output_bytes]
            terms += [handed_on_bytes(stages, stage), sent_bytes(stages, stage)[1]]
            terms.append(own.gradients_bytes)
            terms += [effects[stage, *run].rise_bytes for run in _RUNS]
            terms.append(own.step_peak_bytes)
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
    stages = tuple(sorted({action.stage for action in row}))
    offset = {stage: NUM_TERMS * place for place, stage in enumerate(stages)}
    now = [0] * (NUM_TERMS * len(stages))
    fullest: dict[int, list[tuple[int, ...]]] = {}
    for action, makes_gradients in with_gradients_made(row):
        base = offset[action.stage]
        running = base + RUNS[action.kind, makes_gradients]
        now[running] = 1
        _append(fullest.setdefault(running, []), tuple(now))
        now[running] = 0
        _act(now, action, offset)
        now[base + GRADIENTS] |= makes_gradients
    steps = _in_the_step(row, offset, now)
    return PeakStates(
        stages=stages,
        states=tuple(s for rivals in fullest.values() for s in _undominated(rivals))
        + steps,
        num_microbatches=num_microbatches_of((tuple(row),)),
    )


def _act(now: list[int], action: Action, offset: Mapping[int, int]) -> None:
    """Count what an action leaves."""
    base, stage = offset[action.stage], action.stage
    kept, held = _CHANGES[action.kind]
    now[base + KEPT] += kept
    now[base + HELD] += held
    if action.kind == "F":
        now[base + OUT] += 1
    if action.kind in "BI":
        if stage + 1 in offset:
            now[base + OUT] -= 1
            now[base + BACK] -= 1
        if stage - 1 in offset:
            now[offset[stage - 1] + BACK] += 1
        else:
            now[base + IN] += 1


def _in_the_step(
    row: Sequence[Action], offset: Mapping[int, int], end: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """The states in the optimizer's step: one for each stage that may need most."""
    left = [0] * len(end)
    for stage, base in offset.items():
        left[base + GRADIENTS] = end[base + GRADIENTS]
        if stage - 1 not in offset:
            left[base + IN] = left_for_step(row, stage)
    states = []
    for base in offset.values():
        states.append((*left[: base + STEP], 1, *left[base + STEP + 1 :]))
    return tuple(states)


def _append(states: list[tuple[int, ...]], state: tuple[int, ...]) -> None:
    """Add a state; drop the one before if it lies on the way to it."""
    if len(states) > 1 and _on_the_way(states[-2], states[-1], state):
        states[-1] = state
    else:
        states.append(state)


def _on_the_way(
    before: Sequence[int], here: Sequence[int], later: Sequence[int]
) -> bool:
    """Whether `here` is on the line between the two others."""
    first = [x - y for x, y in zip(here, before, strict=True)]
    second = [x - y for x, y in zip(later, here, strict=True)]
    pivot = next((i for i, step in enumerate(first) if step), None)
    if pivot is None:
        return True
    return first[pivot] * second[pivot] >= 0 and all(
        x * second[pivot] == y * first[pivot]
        for x, y in zip(first, second, strict=True)
    )


def _undominated(states: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    rivals: list[tuple[int, ...]] = []
    for state in states:
        if not any(_covers(rival, state) for rival in rivals):
            rivals = [rival for rival in rivals if not _covers(state, rival)]
            rivals.append(state)
    return rivals


def _covers(state: Sequence[int], other: Sequence[int]) -> bool:
    return all(here >= there for here, there in zip(state, other, strict=True))
