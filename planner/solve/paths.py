"""Lower bounds that the simulator itself supplies.

The simulated makespan is the longest chain of actions that wait for one another.
Which chains exist depends only on the schedule, not on the cut; how long a chain
is, is a sum of stage times. So the chain that decided one simulation is a lower
bound for every other cut:

    makespan >= sum over stages of  num_F * forward_s + num_B * backward_s
                + num_send_F * send_forward_s + num_send_B * send_backward_s

The textbook bounds, such as `M * t_s + sum(t_k, k < s)`, are chains of this kind.
The bound is exact for the cut it came from, which is why adding chains until none
is violated ends with the best cut.

Known limitations: schedules of F and B only, one stage a device.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from planner.schedule.actions import Action, Actions
from planner.simulate import StageTimes, simulate


class Path(NamedTuple):
    """How often a chain passes each stage's actions and transfers.

    Attributes:
        forwards: F, per stage.
        backwards: B, per stage.
        sends_forward: Transfers of the output, per stage.
        sends_backward: Transfers of the input gradient, per stage.
    """

    forwards: tuple[int, ...]
    backwards: tuple[int, ...]
    sends_forward: tuple[int, ...]
    sends_backward: tuple[int, ...]

    def length_s(self, times: Sequence[StageTimes]) -> float:
        """How long the chain takes.

        Args:
            times: One entry a stage.

        Returns:
            A lower bound of the makespan [s].
        """
        return sum(
            num_f * time.forward_s
            + num_b * time.backward_s
            + sends_f * time.send_forward_s
            + sends_b * time.send_backward_s
            for num_f, num_b, sends_f, sends_b, time in zip(*self, times, strict=True)
        )


def path_of(chain: Iterable[Action], num_stages: int) -> Path:
    """Count what a chain of actions passes.

    Args:
        chain: Such as the critical path of a timeline.
        num_stages: Of the pipeline.

    Returns:
        The counts.
    """
    counts = [[0] * num_stages for _ in range(4)]
    chain = tuple(chain)
    for action in chain:
        counts["FB".index(action.kind)][action.stage] += 1
    for before, after in pairwise(chain):
        if after.stage == before.stage + 1:
            counts[2][before.stage] += 1
        elif after.stage == before.stage - 1:
            counts[3][before.stage] += 1
    return Path(*(tuple(row) for row in counts))


def first_paths(
    actions: Actions, num_stages: int, send_shares: Sequence[float] = ()
) -> list[Path]:
    """Chains to begin with: those that decide when one stage is slowest.

    Args:
        actions: Of every device.
        num_stages: Of the pipeline.
        send_shares: Of one transfer over the link after each stage but the last,
            in the time of a stage; empty if transfers take no time.

    Returns:
        Different chains, at least one.
    """
    found: dict[Path, None] = {}
    sends_s = [3.0 * share for share in send_shares] or [0.0] * (num_stages - 1)
    for slow in range(num_stages):
        times = [
            StageTimes(
                forward_s=1.5 if stage == slow else 1.0,
                backward_s=3.0 if stage == slow else 2.0,
                send_forward_s=after_s,
                send_backward_s=before_s,
            )
            for stage, (before_s, after_s) in enumerate(pairwise([0.0, *sends_s, 0.0]))
        ]
        chain = simulate(actions, times).critical_path
        found[path_of(chain, num_stages)] = None
    return list(found)
