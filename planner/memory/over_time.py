"""The memory of one device while it works through its row of actions.

What is always there, and on top, with the stages s of the device and the
microbatches that each has in flight,

    between two actions   sum over s of  (F done, B and I not) * kept of s
                                       + (I done, W not) * held of s
    during an action      the same at its start + how far it rises

and what its stages hand over to each other, see `device_bytes`. Hence the peak is
that of this very order. The items of a plan tell the same level: `activations` is
the higher of the levels before and after an action, `workspace` what comes on top.

Known limitations: the end of the step (exchange of gradients, optimizer) is taken
to need no more than the actions before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.memory.device_bytes import action_bytes, static_memory
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
        activations_bytes: Kept and held by all microbatches while each action runs:
            the more of what is there before it and after it [bytes].
        workspace_bytes: What each action needs on top while it runs [bytes].
        after_bytes: Level after each action, with all that is always there [bytes].
    """

    actions: tuple[Action, ...]
    static: MemoryBreakdown
    activations_bytes: tuple[int, ...]
    workspace_bytes: tuple[int, ...]
    after_bytes: tuple[int, ...]

    @property
    def during_bytes(self) -> tuple[int, ...]:
        """Highest level while each action runs [bytes]."""
        both = zip(self.activations_bytes, self.workspace_bytes, strict=True)
        return tuple(self.static.total + kept + on_top for kept, on_top in both)

    @property
    def peak_position(self) -> int | None:
        """Position of the first action that reaches the peak; None without actions."""
        during = self.during_bytes
        return during.index(max(during)) if during else None

    @property
    def peak_action(self) -> Action | None:
        """The first action that reaches the peak; None without actions."""
        position = self.peak_position
        return None if position is None else self.actions[position]

    @property
    def peak(self) -> MemoryBreakdown:
        """Every item at the fullest moment."""
        position = self.peak_position
        return self.static if position is None else self.during(position)

    def during(self, position: int) -> MemoryBreakdown:
        """Every item while one action runs, at its highest level.

        Args:
            position: Of the action in the row, from 0.

        Returns:
            The items and their sum [bytes].
        """
        items = self.static.items()
        items["activations"] = self.activations_bytes[position]
        items["workspace"] = self.workspace_bytes[position]
        return MemoryBreakdown(**items, total=sum(items.values()))

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
        Its memory while each action runs and after it.
    """
    static = static_memory(stages, num_microbatches_of((tuple(row),)), reserve_bytes)
    effects = action_bytes(stages)
    activations, workspace, after = [], [], []
    level = 0
    for action in row:
        growth, rise = effects[action.stage, action.kind]
        resting = max(level, level + growth)
        activations.append(resting)
        workspace.append(level + rise - resting)
        level += growth
        after.append(static.total + level)
    return MemoryOverTime(
        actions=tuple(row),
        static=static,
        activations_bytes=tuple(activations),
        workspace_bytes=tuple(workspace),
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
    effects = action_bytes(stages)
    level = highest = 0
    for action in row:
        growth, rise = effects[action.stage, action.kind]
        if level + rise > highest:
            highest = level + rise
        level += growth
    num_microbatches = num_microbatches_of((tuple(row),))
    return static_memory(stages, num_microbatches, reserve_bytes).total + highest
