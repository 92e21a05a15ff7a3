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
        spans: Every action, each device's in order.
        num_devices: How many rows the schedule has.
        makespan_s: First F to last B or W [s].
        busy_s: Time in actions, per device [s].
        critical_path: Actions that waited for one another from start to end: the
            makespan is their durations and the transfers between them.
    """

    spans: tuple[Span, ...]
    num_devices: int
    makespan_s: float
    busy_s: tuple[float, ...]
    critical_path: tuple[Action, ...]

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
    spans = tuple(span for row in run.spans for span in row)
    if len(spans) < sum(map(len, actions)):
        msg = "the devices wait for each other for ever"
        raise ValueError(msg)
    return Timeline(
        spans=spans,
        num_devices=len(actions),
        makespan_s=max((span.end_s for span in spans), default=0.0),
        busy_s=tuple(run.busy_s),
        critical_path=run.critical_path(),
    )


class _Run:
    """The state of one simulation.

    A message is the output or the input gradient of one stage for one
    microbatch, numbered `2 * (stage * num_microbatches + microbatch)`, plus 1
    for a gradient. Each has one receiver.
    """

    def __init__(self, actions: Actions, times: Sequence[StageTimes]) -> None:
        self.actions = actions
        self.num_stages = len(times)
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
        last = self.num_stages - 1
        self.send_s = [
            (
                time.send_forward_s if s < last and home[s] != home[s + 1] else 0.0,
                time.send_backward_s if s > 0 and home[s] != home[s - 1] else 0.0,
            )
            for s, time in enumerate(times)
        ]
        self.spans: list[list[Span]] = [[] for _ in actions]
        # Per span, whom it waited for: another span, or None for the start.
        self.causes: dict[Action, Action | None] = {}
        self.busy_s = [0.0] * len(actions)
        self.arrivals: dict[int, tuple[float, Action, int]] = {}
        self.waiting: dict[int, int] = {}

    def _needed(self, action: Action) -> int | None:
        """The message an action waits for, if it comes from another stage."""
        if action.kind == "F" and action.stage > 0:
            sender, is_gradient = action.stage - 1, 0
        elif action.kind in "BI" and action.stage < self.num_stages - 1:
            sender, is_gradient = action.stage + 1, 1
        else:
            return None
        number = sender * self.num_microbatches + action.microbatch
        return 2 * number + is_gradient

    def advance(self, device: int) -> list[int]:
        """Run a device until it must wait; return the devices that it woke."""
        woken = []
        spans = self.spans[device]
        now_s, before = (spans[-1].end_s, spans[-1].action) if spans else (0.0, None)
        for action in self.actions[device][len(spans) :]:
            start_s, cause = now_s, before
            needed = self._needed(action)
            if needed is not None:
                if needed not in self.arrivals:
                    self.waiting[needed] = device
                    break
                arrival_s, sender, _ = self.arrivals[needed]
                if arrival_s > start_s:
                    start_s, cause = arrival_s, sender
            duration_s = self.duration_s[action.stage][action.kind]
            now_s, before = start_s + duration_s, action
            span = Span(device=device, action=action, start_s=start_s, end_s=now_s)
            spans.append(span)
            self.causes[action] = cause
            self.busy_s[device] += duration_s
            if action.kind != "W":
                is_gradient = int(action.kind != "F")
                number = action.stage * self.num_microbatches + action.microbatch
                made = 2 * number + is_gradient
                arrival_s = now_s + self.send_s[action.stage][is_gradient]
                self.arrivals[made] = (arrival_s, action, device)
                if made in self.waiting:
                    woken.append(self.waiting.pop(made))
        return woken

    def critical_path(self) -> tuple[Action, ...]:
        """Walk back from the action that ends last."""
        ends = [row[-1] for row in self.spans if row]
        if not ends:
            return ()
        action: Action | None = max(ends, key=lambda span: span.end_s).action
        path = []
        while action is not None:
            path.append(action)
            action = self.causes[action]
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
