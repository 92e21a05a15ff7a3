"""What the clock says: when every action of one step runs, and why not sooner."""

from dataclasses import dataclass, field
from typing import Literal

from planner.schedule.actions import Action, Actions
from planner.simulate.wiring import Wiring

WaitedFor = Literal["nothing", "device", "transfer"]


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
class PathStep:
    """One action of the critical path, and why it did not start sooner.

    Attributes:
        span: When it runs.
        waited_for: `nothing` at the start of the path, its `device`, or a `transfer`
            from another device.
        gap_s: From the end of what it waited for to its own start: the transfer, if
            it waited for one [s].
    """

    span: Span
    waited_for: WaitedFor
    gap_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When all actions of one step run.

    Attributes:
        wiring: Of the order of actions.
        starts_s: When each action of each device starts, since the first F [s].
        ends_s: When each of them ends, since the first F [s].
        busy_s: Time in actions, per device [s].
        makers: Per step of the wiring, the place of the one on another device whose
            message it waited for; -1 if it waited for its own device.
    """

    wiring: Wiring = field(repr=False)
    starts_s: tuple[tuple[float, ...], ...]
    ends_s: tuple[tuple[float, ...], ...]
    busy_s: tuple[float, ...]
    makers: tuple[int, ...] = field(repr=False)

    @property
    def actions(self) -> Actions:
        """Of every device, in order."""
        return self.wiring.actions

    @property
    def num_devices(self) -> int:
        """How many rows the schedule has."""
        return len(self.actions)

    @property
    def device_ends_s(self) -> tuple[float, ...]:
        """When each device has done its last action [s]."""
        return tuple(row[-1] if row else 0.0 for row in self.ends_s)

    @property
    def makespan_s(self) -> float:
        """First F to last B or W [s]."""
        return max(self.device_ends_s, default=0.0)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every action, device by device, each device's in order."""
        return tuple(
            self._span(device, position)
            for device, row in enumerate(self.actions)
            for position in range(len(row))
        )

    @property
    def busy_fraction(self) -> tuple[float, ...]:
        """Share of the makespan in which each device computes."""
        return tuple(
            busy / self.makespan_s if self.makespan_s else 0.0 for busy in self.busy_s
        )

    @property
    def device_bubbles(self) -> tuple[float, ...]:
        """Share of the makespan in which each device computes nothing."""
        if not self.makespan_s:
            return (0.0,) * self.num_devices
        return tuple(max(1.0 - share, 0.0) for share in self.busy_fraction)

    @property
    def bubble_fraction(self) -> float:
        """1 - busy / (devices * makespan)."""
        if not self.makespan_s:
            return 0.0
        share = sum(self.busy_s) / (self.num_devices * self.makespan_s)
        return max(1.0 - share, 0.0)

    @property
    def critical_path(self) -> tuple[Action, ...]:
        """Actions that waited for one another from start to end, see `path`."""
        return tuple(
            self.actions[device][position] for device, position, _ in self._walk()
        )

    @property
    def path(self) -> tuple[PathStep, ...]:
        """The critical path: its durations and gaps add up to the makespan."""
        steps: list[PathStep] = []
        end_s = 0.0
        for device, position, waited_for in self._walk():
            span = self._span(device, position)
            gap_s = span.start_s - end_s
            steps.append(PathStep(span=span, waited_for=waited_for, gap_s=gap_s))
            end_s = span.end_s
        return tuple(steps)

    def waited_for(self, device: int, position: int) -> tuple[int, int] | None:
        """Why an action did not start sooner.

        Args:
            device: Row of the schedule, from 0.
            position: In that row, from 0.

        Returns:
            Device and position of the action it waited for: of the one before it on
            its device, or of the one on another device that made its input; None
            for the first on a device that waited for nothing.
        """
        maker = self.makers[self.wiring.rows[device][position]]
        if maker < 0:
            return (device, position - 1) if position else None
        return self.wiring.steps[maker][0], self.wiring.positions[maker]

    def _walk(self) -> list[tuple[int, int, WaitedFor]]:
        """Device, position and cause, walked back from what ends last."""
        ends_s = self.device_ends_s
        path: list[tuple[int, int, WaitedFor]] = []
        here: tuple[int, int] | None = None
        if any(self.actions):
            device = ends_s.index(max(ends_s))
            here = device, len(self.actions[device]) - 1
        while here is not None:
            device, position = here
            here = self.waited_for(device, position)
            cause: WaitedFor = "nothing"
            if here is not None:
                cause = "device" if here[0] == device else "transfer"
            path.append((device, position, cause))
        return path[::-1]

    def _span(self, device: int, position: int) -> Span:
        return Span(
            device=device,
            action=self.actions[device][position],
            start_s=self.starts_s[device][position],
            end_s=self.ends_s[device][position],
        )
