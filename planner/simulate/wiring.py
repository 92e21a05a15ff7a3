"""What an order of actions comes to before anything takes time.

Who waits for whom does not depend on times, so one order that is judged with many
cuts is wired once. Its actions are put into one list in which everything comes
after what it waits for, and a message is known by its maker's place in that list.

    0F0 0F1  .  0B0  .  0B1          0F0 0F1 1F0 1B0 1F1 1B1 0B0 0B1
     .  1F0 1B0 1F1 1B1  .   place    0   1   2   3   4   5   6   7
                             takes    -   -   0   -   1   -   3   5

A stage hands over to itself and to stages on its own device in order, so only
messages from other devices can make an action wait.
"""

from dataclasses import dataclass

from planner.schedule.actions import Actions, Kind
from planner.schedule.named import num_microbatches_of

_KIND_CODE: dict[Kind, int] = {"F": 0, "B": 1, "I": 2, "W": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """An order of actions, ready for the clock.

    Attributes:
        actions: Of every device.
        home: Device of each stage.
        steps: Every action as device, code and place of the action whose message it
            takes, -1 if none; the code is `4 * stage` and 0, 1, 2 or 3 for F, B, I
            or W.
        rows: Places in `steps` of the actions of each device, in order.
        positions: Per step, its position in the row of its device.
    """

    actions: Actions
    home: tuple[int, ...]
    steps: tuple[tuple[int, int, int], ...]
    rows: tuple[tuple[int, ...], ...]
    positions: tuple[int, ...]

    @property
    def num_stages(self) -> int:
        """Of the whole pipeline."""
        return len(self.home)


def wire(actions: Actions) -> Wiring:
    """Find out who waits for whom.

    Args:
        actions: Of every device; valid, see `validate_actions`.

    Returns:
        The order, ready for the clock.

    Raises:
        ValueError: The devices wait for each other for ever.
    """
    homes = {action.stage: d for d, row in enumerate(actions) for action in row}
    walk = _Walk(actions, num_stages=1 + max(homes, default=-1))
    ready = list(range(len(actions)))
    while ready:
        ready.extend(walk.advance(ready.pop()))
    if any(len(done) < len(row) for done, row in zip(walk.rows, actions, strict=True)):
        msg = "the devices wait for each other for ever"
        raise ValueError(msg)
    return Wiring(
        actions=actions,
        home=tuple(homes.get(stage, -1) for stage in range(walk.num_stages)),
        steps=tuple(walk.steps),
        rows=tuple(map(tuple, walk.rows)),
        positions=tuple(walk.positions),
    )


class _Walk:
    """Every device goes on until it waits for a message that is not there yet.

    A message is the output (0) or the input gradient (1) of one stage for one
    microbatch, numbered `2 * (stage * num_microbatches + microbatch)` plus 0 or 1.
    Each has one receiver.
    """

    def __init__(self, actions: Actions, num_stages: int) -> None:
        self.actions = actions
        self.num_stages = num_stages
        self.num_microbatches = num_microbatches_of(actions)
        self.steps: list[tuple[int, int, int]] = []
        self.positions: list[int] = []
        self.rows: list[list[int]] = [[] for _ in actions]
        # By message: the place of its maker, and the device that waits for it.
        self.makers: dict[int, int] = {}
        self.waiting: dict[int, int] = {}

    def advance(self, device: int) -> list[int]:
        """Run a device until it must wait; return the devices that it woke."""
        woken = []
        row, done = self.actions[device], self.rows[device]
        for action in row[len(done) :]:
            stage, kind = action.stage, action.kind
            is_gradient = 0 if kind == "F" else 1
            sender = stage + 1 if is_gradient else stage - 1
            maker = -1
            if kind != "W" and 0 <= sender < self.num_stages:
                number = sender * self.num_microbatches + action.microbatch
                needed = 2 * number + is_gradient
                if needed not in self.makers:
                    self.waiting[needed] = device
                    break
                maker = self.makers[needed]
            place = len(self.steps)
            self.steps.append((device, 4 * stage + _KIND_CODE[kind], maker))
            self.positions.append(len(done))
            done.append(place)
            if kind != "W":
                number = stage * self.num_microbatches + action.microbatch
                made = 2 * number + is_gradient
                self.makers[made] = place
                if made in self.waiting:
                    woken.append(self.waiting.pop(made))
        return woken
