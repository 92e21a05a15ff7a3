"""The memory of one device while it works through its row of actions.

What is always there, and on top, with the stages s of the device and the
microbatches that each has in flight,

    between two actions   sum over s of  (F done, B and I not) * kept of s
                                       + (I done, W not) * held of s
                                       + gradients of s, from its first B or W on
                                       + what s has sent to other devices so far
    during an action      the same at its start + how far it rises
    in the optimizer's    the gradients of all stages, what B left in the buffers of
    step                  their inputs, and what the step takes for the moment

and what its stages hand over to each other, see `device_bytes`. Hence the peak is
that of this very order. The items tell the same level: `activations`, `gradients`
and `communication` are those before or after the action, whichever is more in all,
and `workspace` what comes on top.

Known limitations: the exchange of gradients between devices is taken to need no more
than the actions before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.memory.device_bytes import (
    action_effects,
    left_for_step,
    sent_bytes,
    static_memory,
    with_gradients_made,
)
from planner.memory.stage_bytes import StageBytes
from planner.plan import MemoryBreakdown
from planner.schedule.actions import Action
from planner.schedule.named import num_microbatches_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOverTime:
    """The level of one device, action by action.

    Attributes:
        actions: Of the device, in order.
        static: What is there all the time, item by item.
        moments: Every item at the highest level of each action, and of the
            optimizer's step after them.
        after_bytes: Level after each action, with all that is always there [bytes].
    """

    actions: tuple[Action, ...]
    static: MemoryBreakdown
    moments: tuple[MemoryBreakdown, ...]
    after_bytes: tuple[int, ...]

    @property
    def during_bytes(self) -> tuple[int, ...]:
        """Highest level while each action runs [bytes]."""
        return tuple(moment.total for moment in self.moments[:-1])

    @property
    def peak_position(self) -> int:
        """Position of the first moment that reaches the peak."""
        totals = [moment.total for moment in self.moments]
        return totals.index(max(totals))

    @property
    def peak_action(self) -> Action | None:
        """The first action that reaches the peak; None if the optimizer's step does."""
        position = self.peak_position
        return self.actions[position] if position < len(self.actions) else None

    @property
    def peak(self) -> MemoryBreakdown:
        """Every item at the fullest moment."""
        return self.moments[self.peak_position]

    def curve(
        self, starts_s: Sequence[float], ends_s: Sequence[float]
    ) -> tuple[tuple[float, int], ...]:
        """The level on the clock, as a line of steps.

        Args:
            starts_s: Of each action, such as a row of `Timeline.starts_s` [s].
            ends_s: The same for the ends [s].

        Returns:
            From when on [s] which level holds [bytes]: the highest of an action from
            its start, what it leaves from its end.
        """
        points = [(0.0, self.static.total)]
        moments = zip(
            starts_s, ends_s, self.during_bytes, self.after_bytes, strict=True
        )
        for start_s, end_s, during, after in moments:
            points += [(start_s, during), (end_s, after)]
        return tuple(points)


def device_memory(
    row: Sequence[Action], stages: Mapping[int, StageBytes], reserve_bytes: int = 0
) -> MemoryOverTime:
    """Follow one device through a step.

    Args:
        row: Its actions, in order.
        stages: Memory of its stages by stage number.
        reserve_bytes: Kept free on the card [bytes].

    Returns:
        Its memory, action by action.
    """
    static = static_memory(stages, num_microbatches_of((tuple(row),)), reserve_bytes)
    effects = action_effects(stages)
    moments, after = [], []
    now = (0, 0, 0)
    for action, makes_gradients in with_gradients_made(row):
        *growth, rise = effects[action.stage, action.kind, makes_gradients]
        later = (now[0] + growth[0], now[1] + growth[1], now[2] + growth[2])
        resting = max(now, later, key=sum)
        moments.append(_moment(static, resting, sum(now) + rise - sum(resting)))
        after.append(static.total + sum(later))
        now = later
    left, step_peak = _before_step(row, stages)
    moments.append(_moment(static, (0, now[1], left), step_peak))
    return MemoryOverTime(
        actions=tuple(row),
        static=static,
        moments=tuple(moments),
        after_bytes=tuple(after),
    )


def peak_bytes(
    row: Sequence[Action], stages: Mapping[int, StageBytes], reserve_bytes: int = 0
) -> int:
    """The highest level of one device, and nothing else: for a search over orders.

    Args:
        row: Its actions, in order.
        stages: Memory of its stages by stage number.
        reserve_bytes: Kept free on the card [bytes].

    Returns:
        The total of `device_memory(...).peak` [bytes].
    """
    effects = action_effects(stages)
    level = highest = gradients = 0
    for action, makes_gradients in with_gradients_made(row):
        activations, made, sent, rise = effects[
            action.stage, action.kind, makes_gradients
        ]
        if level + rise > highest:
            highest = level + rise
        level += activations + made + sent
        gradients += made
    left, step_peak = _before_step(row, stages)
    highest = max(highest, gradients + left + step_peak)
    num_microbatches = num_microbatches_of((tuple(row),))
    return static_memory(stages, num_microbatches, reserve_bytes).total + highest


def _before_step(
    row: Sequence[Action], stages: Mapping[int, StageBytes]
) -> tuple[int, int]:
    """What B left in the buffers of inputs, and what the optimizer's step takes."""
    left = sum(left_for_step(row, s) * sent_bytes(stages, s)[1] for s in stages)
    return left, max((own.step_peak_bytes for own in stages.values()), default=0)


def _moment(
    static: MemoryBreakdown, level: tuple[int, int, int], workspace: int
) -> MemoryBreakdown:
    activations, gradients, sent = level
    items = static.items()
    items["activations"] = activations
    items["gradients"] = gradients
    items["communication"] += sent
    items["workspace"] = workspace
    return MemoryBreakdown(**items, total=sum(items.values()))
