"""The schedules that have a name, and what follows from any list of actions.

A further schedule is one more file and one more entry in `SCHEDULES`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from planner.errors import WishError
from planner.schedule.actions import Actions
from planner.schedule.dualpipe_v import dualpipe_v, dualpipe_v_problem
from planner.schedule.gpipe import gpipe
from planner.schedule.interleaved_1f1b import interleaved_1f1b
from planner.schedule.looped_bfs import looped_bfs
from planner.schedule.one_forward_one_backward import one_forward_one_backward
from planner.schedule.placement import Placement
from planner.schedule.rounds import rounds_problem
from planner.schedule.zb_v import zb_v
from planner.schedule.zero_bubble import interleaved_zero_bubble, zero_bubble_h1


def _no_problem(_num_devices: int, _num_microbatches: int) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSchedule:
    """A rule that makes the actions of every device.

    Attributes:
        name: As a user writes it.
        make: From the numbers of devices, of microbatches and of stages a device,
            which must be possible, see `problem`.
        placement: Which device has which stages.
        min_stages_per_device: Fewest that it can have.
        max_stages_per_device: Most that it can have; None if any number.
        splits_backward: Whether it has I and W.
        microbatches_problem: Why a number of devices cannot work on a number of
            microbatches; empty if they can.
    """

    name: str
    make: Callable[[int, int, int], Actions]
    placement: Placement = "loop"
    min_stages_per_device: int = 1
    max_stages_per_device: int | None = 1
    splits_backward: bool = False
    microbatches_problem: Callable[[int, int], str] = _no_problem

    def problem(
        self, num_devices: int, num_microbatches: int, stages_per_device: int
    ) -> str:
        """Why this schedule is impossible.

        Args:
            num_devices: At least 1.
            num_microbatches: Of one step, at least 1.
            stages_per_device: At least 1.

        Returns:
            One sentence with the numbers and what to do; empty if possible.
        """
        least, most = self.min_stages_per_device, self.max_stages_per_device
        if stages_per_device < least or (most and stages_per_device > most):
            wanted = str(least) if least == most else f"at least {least}"
            return (
                f"schedule {self.name} has {wanted} stage{'s' * (least > 1)} a device, "
                f"not {stages_per_device}; use another --schedule"
            )
        because = self.microbatches_problem(num_devices, num_microbatches)
        if not because:
            return ""
        return (
            f"schedule {self.name} on {num_devices} devices {because} "
            "(--global-batch-size, --microbatch-size) or another --schedule"
        )


# In the order of preference: the first of equally fast ones is taken.
SCHEDULES: dict[str, NamedSchedule] = {
    schedule.name: schedule
    for schedule in (
        NamedSchedule(
            name="1f1b",
            make=lambda devices, microbatches, _: one_forward_one_backward(
                devices, microbatches
            ),
        ),
        NamedSchedule(
            name="gpipe",
            make=lambda devices, microbatches, _: gpipe(devices, microbatches),
        ),
        NamedSchedule(
            name="interleaved-1f1b",
            make=interleaved_1f1b,
            min_stages_per_device=2,
            max_stages_per_device=None,
            microbatches_problem=rounds_problem,
        ),
        NamedSchedule(
            name="looped-bfs",
            make=looped_bfs,
            min_stages_per_device=2,
            max_stages_per_device=None,
        ),
        NamedSchedule(
            name="zb-h1",
            make=lambda devices, microbatches, _: zero_bubble_h1(devices, microbatches),
            splits_backward=True,
        ),
        NamedSchedule(
            name="interleaved-zb",
            make=interleaved_zero_bubble,
            min_stages_per_device=2,
            max_stages_per_device=None,
            splits_backward=True,
            microbatches_problem=rounds_problem,
        ),
        NamedSchedule(
            name="zb-v",
            make=lambda devices, microbatches, _: zb_v(devices, microbatches),
            placement="v",
            min_stages_per_device=2,
            max_stages_per_device=2,
            splits_backward=True,
        ),
        NamedSchedule(
            name="dualpipe-v",
            make=lambda devices, microbatches, _: dualpipe_v(devices, microbatches),
            placement="v",
            min_stages_per_device=2,
            max_stages_per_device=2,
            splits_backward=True,
            microbatches_problem=dualpipe_v_problem,
        ),
    )
}


def named_schedule(name: str) -> NamedSchedule:
    """The schedule of a name.

    Args:
        name: As a user writes it.

    Returns:
        The schedule.

    Raises:
        WishError: There is no schedule of that name.
    """
    if name not in SCHEDULES:
        msg = f"unknown schedule '{name}'; there are {', '.join(SCHEDULES)}"
        raise WishError(msg)
    return SCHEDULES[name]


def schedule_actions(
    name: str,
    num_devices: int,
    num_microbatches: int,
    stages_per_device: int | None = None,
) -> Actions:
    """Order of actions of a named schedule.

    Args:
        name: A key of `SCHEDULES`.
        num_devices: At least 1.
        num_microbatches: Of one step, at least 1.
        stages_per_device: At least 1; None for the fewest that the schedule can
            have.

    Returns:
        The actions of every device.

    Raises:
        WishError: There is no schedule of that name, or not with these numbers.
        ValueError: A count is below 1.
    """
    schedule = named_schedule(name)
    if stages_per_device is None:
        stages_per_device = schedule.min_stages_per_device
    if min(num_devices, num_microbatches, stages_per_device) < 1:
        msg = (
            f"{num_devices} devices, {stages_per_device} stages a device and "
            f"{num_microbatches} microbatches: a schedule needs at least one of each"
        )
        raise ValueError(msg)
    if problem := schedule.problem(num_devices, num_microbatches, stages_per_device):
        raise WishError(problem)
    return schedule.make(num_devices, num_microbatches, stages_per_device)


def num_in_flight(actions: Actions, stage: int) -> int:
    """How many microbatches a stage holds at most.

    A microbatch is in flight from its F until its activations are freed: by its
    B, or by its W where the backward is split.

    Known limitations: the stages of one device peak at different moments, so the
    sum over them is more than the device ever holds.

    Args:
        actions: Of every device.
        stage: From 0.

    Returns:
        The largest number of F less B and W; under 1F1B
        `min(num_stages - stage, num_microbatches)`.
    """
    held = most = 0
    for row in actions:
        for action in row:
            if action.stage == stage:
                held += {"F": 1, "B": -1, "I": 0, "W": -1}[action.kind]
                most = max(most, held)
    return most


def num_microbatches_of(actions: Actions) -> int:
    """How many microbatches a list of actions works on.

    Args:
        actions: Of every device.

    Returns:
        One more than the largest microbatch index; 0 without actions.
    """
    return 1 + max((a.microbatch for row in actions for a in row), default=-1)
