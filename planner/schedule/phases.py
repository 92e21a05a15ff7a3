"""A device's row of actions, written as phases that repeat a few actions.

    Phase(2, "0F"), Phase(1, "1F 0F"), Phase(2, "1F 1I W")

is for stages 3 and 4 on the device

    3F0 3F1 4F0 3F2 4F1 4I0 4W0 4F2 4I1 4W1

`0` and `1` are the device's first and second stage. Every F, and every B or I, is
of the stage's next microbatch; `0W` is the oldest of that stage that has had its
I and not its W, and `W` the oldest of both stages.
"""

from collections import Counter
from typing import NamedTuple, cast

from planner.schedule.actions import Action, Kind


class Phase(NamedTuple):
    """Some actions, several times over.

    Attributes:
        times: How often; 0 leaves the phase out.
        steps: Such as `0F 1I W`.
    """

    times: int
    steps: str


def play(phases: tuple[Phase, ...], stages: tuple[int, ...]) -> tuple[Action, ...]:
    """Write phases out.

    Args:
        phases: In order.
        stages: Of the device, in the order of the model.

    Returns:
        The row of actions.
    """
    row: list[Action] = []
    waiting: list[Action] = []
    count: Counter[tuple[int, bool]] = Counter()
    for step in (step for times, steps in phases for step in steps.split() * times):
        kind = cast(Kind, step[-1])
        if kind == "W":
            mine = stages if step == "W" else (stages[int(step[0])],)
            row.append(next(action for action in waiting if action.stage in mine))
            waiting.remove(row[-1])
            continue
        stage = stages[int(step[0])]
        microbatch = count[stage, kind == "F"]
        count[stage, kind == "F"] += 1
        row.append(Action(stage, kind, microbatch))
        if kind == "I":
            waiting.append(Action(stage, "W", microbatch))
    return tuple(row)
