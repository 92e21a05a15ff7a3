"""What an order is made for: times, homes and memory of some stages.

Every microbatch is alike, so on each stage they may be served first come, first
served without losing time or room. An order is therefore written as one row of
codes per device, `4 * stage + kind` with F, B, I, W = 0, 1, 2, 3; the n-th time a
code comes up it is about microbatch n, B and I counted together.

    memory of a device    + kept at F, - kept at B, held - kept at I, - held at W
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.errors import InfeasibleError
from planner.schedule.actions import Action, Actions
from planner.schedule.validate import KINDS
from planner.simulate import StageTimes
from planner.units import format_bytes

# Per device: codes in order.
Rows = tuple[tuple[int, ...], ...]
F, B, I, W = range(4)  # noqa: E741 - PyTorch's letters


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderProblem:
    """Some stages on some devices, in the form that the inner loops want.

    Attributes:
        num_microbatches: Of one step.
        home: Device of each stage.
        stages: Of each device, in order of the model.
        duration_s: Per code [s].
        send_s: Per code, 0 within a device and for W [s].
        growth_bytes: Per code, what the device holds more after it [bytes].
        kept_bytes: Per stage, from F to B or I [bytes].
        room_bytes: Per device, for what its stages keep and hold [bytes].
    """

    num_microbatches: int
    home: tuple[int, ...]
    stages: tuple[tuple[int, ...], ...]
    duration_s: tuple[float, ...]
    send_s: tuple[float, ...]
    growth_bytes: tuple[float, ...]
    kept_bytes: tuple[float, ...]
    room_bytes: tuple[float, ...]

    @property
    def num_stages(self) -> int:
        """Of the whole pipeline."""
        return len(self.home)

    @property
    def num_devices(self) -> int:
        """How many rows an order has."""
        return len(self.stages)

    def may_split(self, stage: int) -> bool:
        """Whether the times of a stage know I and W.

        Args:
            stage: From 0.

        Returns:
            False if either takes no time but B does.
        """
        own_s = self.duration_s[4 * stage : 4 * stage + 4]
        return own_s[I] + own_s[W] > 0 or own_s[B] == 0

    def splitting_s(self, stage: int) -> float:
        """What I and W take more than B.

        Args:
            stage: From 0.

        Returns:
            The time; below 0 if B is the slower one [s].
        """
        own_s = self.duration_s[4 * stage : 4 * stage + 4]
        return own_s[I] + own_s[W] - own_s[B]

    def quick_backward_s(self, stage: int) -> float:
        """The shortest time from a gradient's arrival to that of the one it makes.

        Args:
            stage: From 0.

        Returns:
            Of I or B, whichever is shorter, and the transfer [s].
        """
        own_s = self.duration_s[4 * stage : 4 * stage + 4]
        quick_s = min(own_s[B], own_s[I]) if self.may_split(stage) else own_s[B]
        return quick_s + self.send_s[4 * stage + B]


def order_problem(
    times: Sequence[StageTimes],
    device_of_stage: Sequence[int],
    num_microbatches: int,
    *,
    room_bytes: Sequence[float] | None = None,
    kept_bytes: Sequence[float] | None = None,
    held_bytes: Sequence[float] | None = None,
) -> OrderProblem:
    """Prepare the search for an order.

    Args:
        times: One entry a stage.
        device_of_stage: Rows of the order, counted from 0 without a gap.
        num_microbatches: Of one step, at least 1.
        room_bytes: Per device, for activations; None for no limit [bytes].
        kept_bytes: Per stage, of one microbatch from F to B or I [bytes].
        held_bytes: The same from I to W; None for as much as from F [bytes].

    Returns:
        The problem.

    Raises:
        InfeasibleError: One microbatch alone does not fit a device.
        ValueError: The lengths do not match or a device has no stage.
    """
    count = len(times)
    num_devices = 1 + max(device_of_stage, default=-1)
    kept = tuple(kept_bytes or (0.0,) * count)
    held = tuple(held_bytes or kept)
    room = tuple(room_bytes or (float("inf"),) * num_devices)
    stages = tuple(
        tuple(s for s, home in enumerate(device_of_stage) if home == device)
        for device in range(num_devices)
    )
    lengths = {len(device_of_stage), len(kept), len(held)}
    if lengths != {count} or len(room) != num_devices or not all(stages):
        msg = (
            f"{count} stages with devices {list(device_of_stage)}, {len(kept)} sizes "
            f"and {len(room)} rooms do not belong together"
        )
        raise ValueError(msg)
    if num_microbatches < 1:
        msg = f"{num_microbatches} microbatches: an order needs at least one"
        raise ValueError(msg)
    _check_room(stages, kept, room)
    sends = [_sends(times, device_of_stage, s) for s in range(count)]
    return OrderProblem(
        num_microbatches=num_microbatches,
        home=tuple(device_of_stage),
        stages=stages,
        duration_s=tuple(
            duration_s
            for t in times
            for duration_s in (
                t.forward_s,
                t.backward_s,
                t.input_grad_s,
                t.weight_grad_s,
            )
        ),
        send_s=tuple(s for there, back in sends for s in (there, back, back, 0.0)),
        growth_bytes=tuple(
            bytes_
            for k, h in zip(kept, held, strict=True)
            for bytes_ in (k, -k, h - k, -h)
        ),
        kept_bytes=kept,
        room_bytes=room,
    )


def _check_room(
    stages: Sequence[Sequence[int]], kept: Sequence[float], room: Sequence[float]
) -> None:
    """Refuse a device on which not even one microbatch fits."""
    for device, own in enumerate(stages):
        least = sum(kept[s] for s in own)
        if least > room[device]:
            msg = (
                f"one microbatch keeps {format_bytes(round(least))} on device "
                f"{device}, which has {format_bytes(round(room[device]))} left for it; "
                "use a smaller microbatch or recompute"
            )
            raise InfeasibleError(msg)


def _sends(
    times: Sequence[StageTimes], home: Sequence[int], stage: int
) -> tuple[float, float]:
    """Transfer times to the next stage and to the one before [s]."""
    there = stage + 1 < len(times) and home[stage] != home[stage + 1]
    back = stage > 0 and home[stage] != home[stage - 1]
    own = times[stage]
    return (
        own.send_forward_s if there else 0.0,
        own.send_backward_s if back else 0.0,
    )


def rows_of(actions: Actions) -> Rows:
    """Write actions as codes, each microbatch replaced by its turn.

    Args:
        actions: Of every device.

    Returns:
        Rows of the same kinds of action in the same order.
    """
    return tuple(
        tuple(4 * action.stage + KINDS.index(action.kind) for action in row)
        for row in actions
    )


def actions_of(rows: Rows) -> Actions:
    """Write codes as actions: first come, first served.

    Args:
        rows: Of every device.

    Returns:
        The actions of every device.
    """
    return tuple(_row_actions(row) for row in rows)


def _row_actions(row: tuple[int, ...]) -> tuple[Action, ...]:
    forwards: dict[int, int] = {}
    backwards: dict[int, int] = {}
    unweighted: dict[int, list[int]] = {}
    actions = []
    for code in row:
        stage, kind = divmod(code, 4)
        if kind == W:
            microbatch = unweighted[stage].pop(0)
        else:
            count = forwards if kind == F else backwards
            microbatch = count.get(stage, 0)
            count[stage] = microbatch + 1
            if kind == I:
                unweighted.setdefault(stage, []).append(microbatch)
        actions.append(Action(stage, KINDS[kind], microbatch))
    return tuple(actions)


def fits(problem: OrderProblem, device: int, row: Sequence[int]) -> bool:
    """Whether a device can do its actions in this order: F, then B or I, then W.

    Args:
        problem: Times, homes and memory.
        device: Whose row it is.
        row: Its codes.

    Returns:
        True if nothing is done before what it needs and its room is never exceeded.
    """
    growth = problem.growth_bytes
    room = problem.room_bytes[device] * (1 + 1e-12)
    level = 0.0
    waiting_b = dict.fromkeys(problem.stages[device], 0)
    waiting_w = dict.fromkeys(problem.stages[device], 0)
    for code in row:
        stage, kind = code >> 2, code & 3
        if kind == F:
            waiting_b[stage] += 1
        elif kind == W:
            waiting_w[stage] -= 1
            if waiting_w[stage] < 0:
                return False
        else:
            waiting_b[stage] -= 1
            if waiting_b[stage] < 0:
                return False
            if kind == I:
                waiting_w[stage] += 1
        level += growth[code]
        if level > room:
            return False
    return True
