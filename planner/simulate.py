"""When everything happens: the actions of every device on one clock.

An action starts when its device is free and its input has arrived; a transfer
starts when its producer ends and keeps no device busy. Stages on the same
device hand over without a transfer.

    F0 F1 .. .. B0 B0 F2 B1 B1 .. B2 B2
    .. F0 B0 B0 F1 B1 B1 F2 B2 B2 .. ..

Known limitations: transfers do not wait for each other, and slow no compute.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.schedule.actions import Action, Actions
from planner.schedule.named import num_microbatches_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """How long the actions of one stage take for one microbatch.

    Attributes:
        forward_s: F [s].
        backward_s: B, recompute included [s].
        input_grad_s: I, recompute included [s].
        weight_grad_s: W [s].
        send_forward_s: Transfer of its output to the next stage [s].
        send_backward_s: Transfer of its input gradient to the stage before [s].
    """

    forward_s: float
    backward_s: float
    input_grad_s: float = 0.0
    weight_grad_s: float = 0.0
    send_forward_s: float = 0.0
    send_backward_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When one action runs.

    Attributes:
        device: Row of the schedule, from 0.
        action: What runs.
        start_s: Since the first F [s].
        end_s: Since the first F [s].
    """

    device: int
    action: Action
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When all actions of one step run.

    Attributes:
        actions: Of every device, in order.
        starts_s: When each of them starts, since the first F [s].
        ends_s: When each of them ends, since the first F [s].
        busy_s: Time in actions, per device [s].
        critical_path: Actions that waited for one another from start to end: the
            makespan is their durations and the transfers between them.
    """

    actions: Actions
    starts_s: tuple[tuple[float, ...], ...]
    ends_s: tuple[tuple[float, ...], ...]
    busy_s: tuple[float, ...]
    critical_path: tuple[Action, ...]

    @property
    def num_devices(self) -> int:
        """How many rows the schedule has."""
        return len(self.actions)

    @property
    def makespan_s(self) -> float:
        """First F to last B or W [s]."""
        return max((row[-1] for row in self.ends_s if row), default=0.0)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every action, device by device, each device's in order."""
        return tuple(
            Span(device=device, action=action, start_s=start_s, end_s=end_s)
            for device, row in enumerate(self.actions)
            for action, start_s, end_s in zip(
                row, self.starts_s[device], self.ends_s[device], strict=True
            )
        )

    @property
    def busy_fraction(self) -> tuple[float, ...]:
        """Share of the makespan in which each device computes."""
        return tuple(
            busy / self.makespan_s if self.makespan_s else 0.0 for busy in self.busy_s
        )

    @property
    def bubble_fraction(self) -> float:
        """1 - busy / (devices * makespan)."""
        if not self.makespan_s:
            return 0.0
        share = sum(self.busy_s) / (self.num_devices * self.makespan_s)
        return max(1.0 - share, 0.0)


def simulate(actions: Actions, times: Sequence[StageTimes]) -> Timeline:
    """Run a schedule on paper.

    Args:
        actions: Of every device; valid, see `validate_actions`.
        times: One entry a stage.

    Returns:
        When every action runs.

    Raises:
        ValueError: The devices wait for each other for ever.
    """
    run = _Run(actions, times)
    ready = list(range(len(actions)))
    while ready:
        ready.extend(run.advance(ready.pop()))
    if any(len(ends) < len(row) for ends, row in zip(run.ends, actions, strict=True)):
        msg = "the devices wait for each other for ever"
        raise ValueError(msg)
    return Timeline(
        actions=actions,
        starts_s=tuple(map(tuple, run.starts)),
        ends_s=tuple(map(tuple, run.ends)),
        busy_s=tuple(run.busy_s),
        critical_path=run.critical_path(),
    )


class _Run:
    """The state of one simulation.

    A message is the output (0) or the input gradient (1) of one stage for one
    microbatch, numbered `2 * (stage * num_microbatches + microbatch)` plus 0 or
    1. Each has one receiver. Tuples and lists, no objects: this is the innermost
    loop of the search.
    """

    def __init__(self, actions: Actions, times: Sequence[StageTimes]) -> None:
        self.actions = actions
        self.last_stage = last = len(times) - 1
        self.num_microbatches = num_microbatches_of(actions)
        home = {action.stage: d for d, row in enumerate(actions) for action in row}
        self.duration_s = [
            {
                "F": time.forward_s,
                "B": time.backward_s,
                "I": time.input_grad_s,
                "W": time.weight_grad_s,
            }
            for time in times
        ]
        self.send_s = [
            (
                time.send_forward_s if s < last and home[s] != home[s + 1] else 0.0,
                time.send_backward_s if s > 0 and home[s] != home[s - 1] else 0.0,
            )
            for s, time in enumerate(times)
        ]
        self.starts: list[list[float]] = [[] for _ in actions]
        self.ends: list[list[float]] = [[] for _ in actions]
        # Whom each action waited for: the device and position of another action,
        # or None if it waited for the one before it on its own device.
        self.senders: list[list[tuple[int, int] | None]] = [[] for _ in actions]
        self.busy_s = [0.0] * len(actions)
        # By message: when it arrives, and the device and position of its maker.
        self.arrivals: dict[int, tuple[float, tuple[int, int]]] = {}
        self.waiting: dict[int, int] = {}

    def advance(self, device: int) -> list[int]:
        """Run a device until it must wait; return the devices that it woke."""
        woken = []
        starts, ends, senders = (
            self.starts[device],
            self.ends[device],
            self.senders[device],
        )
        arrivals, last_stage = self.arrivals, self.last_stage
        row = self.actions[device]
        now_s = ends[-1] if ends else 0.0
        for position in range(len(ends), len(row)):
            action = row[position]
            stage, kind = action.stage, action.kind
            is_gradient = 0 if kind == "F" else 1
            sender = stage + 1 if is_gradient else stage - 1
            maker = None
            if kind != "W" and 0 <= sender <= last_stage:
                number = sender * self.num_microbatches + action.microbatch
                needed = 2 * number + is_gradient
                if needed not in arrivals:
                    self.waiting[needed] = device
                    break
                arrival_s, made_at = arrivals[needed]
                if arrival_s > now_s:
                    now_s, maker = arrival_s, made_at
            duration_s = self.duration_s[stage][kind]
            starts.append(now_s)
            now_s += duration_s
            ends.append(now_s)
            senders.append(maker)
            self.busy_s[device] += duration_s
            if kind != "W":
                number = stage * self.num_microbatches + action.microbatch
                made = 2 * number + is_gradient
                arrival_s = now_s + self.send_s[stage][is_gradient]
                arrivals[made] = (arrival_s, (device, position))
                if made in self.waiting:
                    woken.append(self.waiting.pop(made))
        return woken

    def critical_path(self) -> tuple[Action, ...]:
        """Walk back from the action that ends last."""
        ends_s = [ends[-1] if ends else -1.0 for ends in self.ends]
        device = ends_s.index(max(ends_s))
        position = len(self.ends[device]) - 1
        path = []
        while position >= 0:
            path.append(self.actions[device][position])
            maker = self.senders[device][position]
            device, position = maker or (device, position - 1)
        return tuple(reversed(path))


def timeline_rows(timeline: Timeline, cell_s: float) -> list[str]:
    """Draw a timeline as text, to scale.

    Args:
        timeline: What to draw.
        cell_s: Time of one column [s].

    Returns:
        One line a device: in each column the action that runs in its middle, or
        dots; with the stage in front where a device has several.
    """
    stages: dict[int, set[int]] = {d: set() for d in range(timeline.num_devices)}
    for span in timeline.spans:
        stages[span.device].add(span.action.stage)
    several = any(len(on_device) > 1 for on_device in stages.values())
    num_cells = round(timeline.makespan_s / cell_s)
    grid = [[""] * num_cells for _ in range(timeline.num_devices)]
    for span in timeline.spans:
        label = f"{span.action.kind}{span.action.microbatch}"
        for cell in range(num_cells):
            if span.start_s <= (cell + 0.5) * cell_s < span.end_s:
                prefix = str(span.action.stage) if several else ""
                grid[span.device][cell] = prefix + label
    width = max((len(label) for row in grid for label in row), default=1)
    return [
        " ".join((label or "..").ljust(width) for label in row).rstrip() for row in grid
    ]
