"""Lower bounds that the simulator itself supplies.

The simulated makespan is the longest chain of actions that wait for one another.
Which chains exist depends only on the schedule, not on the cut; how long a chain
is, is a sum of stage times. So the chain that decided one simulation is a lower
bound for every other cut:

    makespan >= sum over stages of  num_F * forward_s + num_B * backward_s
                + num_I * input_grad_s + num_W * weight_grad_s
                + num_send_F * send_forward_s + num_send_B * send_backward_s

The textbook bounds, such as `M * t_s + sum(t_k, k < s)`, are chains of this kind.
The bound is exact for the cut it came from, which is why adding chains until none
is violated ends with the best cut.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from planner.schedule.actions import Action, Actions
from planner.simulate import StageTimes, simulate

# What a chain passes, by the field of `StageTimes` that says how long it takes.
PARTS = (
    "forward_s",
    "backward_s",
    "input_grad_s",
    "weight_grad_s",
    "send_forward_s",
    "send_backward_s",
)
_KINDS = "FBIW"


class Path(NamedTuple):
    """How often a chain passes each stage's actions and transfers.

    Attributes:
        forwards: F, per stage.
        backwards: B, per stage.
        input_grads: I, per stage.
        weight_grads: W, per stage.
        sends_forward: Transfers of the output, per stage.
        sends_backward: Transfers of the input gradient, per stage.
    """

    forwards: tuple[int, ...]
    backwards: tuple[int, ...]
    input_grads: tuple[int, ...]
    weight_grads: tuple[int, ...]
    sends_forward: tuple[int, ...]
    sends_backward: tuple[int, ...]

    def length_s(self, times: Sequence[StageTimes]) -> float:
        """How long the chain takes.

        Args:
            times: One entry a stage.

        Returns:
            A lower bound of the makespan [s].
        """
        length_s = 0.0
        for part, counts in zip(PARTS, self, strict=True):
            for count, time in zip(counts, times, strict=True):
                length_s += count * getattr(time, part)
        return length_s


def path_of(chain: Iterable[Action], home: Sequence[int]) -> Path:
    """Count what a chain of actions passes.

    Args:
        chain: Such as the critical path of a timeline.
        home: Which device works on each stage of the pipeline.

    Returns:
        The counts.
    """
    counts = [[0] * len(home) for _ in PARTS]
    chain = tuple(chain)
    for action in chain:
        counts[_KINDS.index(action.kind)][action.stage] += 1
    for before, after in pairwise(chain):
        # On one device the next action only waited for its turn.
        if home[before.stage] != home[after.stage]:
            way = "send_forward_s" if before.kind == "F" else "send_backward_s"
            counts[PARTS.index(way)][before.stage] += 1
    return Path(*(tuple(row) for row in counts))


def first_paths(
    actions: Actions, home: Sequence[int], send_shares: Sequence[float] = ()
) -> list[Path]:
    """Chains to begin with: those that decide when one stage is slowest.

    Args:
        actions: Of every device.
        home: Which device works on each stage of the pipeline.
        send_shares: Of one transfer over the link after each stage but the last,
            in the time of a stage; empty if transfers take no time.

    Returns:
        Different chains, at least one.
    """
    num_stages = len(home)
    found: dict[Path, None] = {}
    sends_s = [3.0 * share for share in send_shares] or [0.0] * (num_stages - 1)
    for slow in range(num_stages):
        times = [
            StageTimes(
                forward_s=1.5 if stage == slow else 1.0,
                backward_s=3.0 if stage == slow else 2.0,
                input_grad_s=1.5 if stage == slow else 1.0,
                weight_grad_s=1.5 if stage == slow else 1.0,
                send_forward_s=after_s,
                send_backward_s=before_s,
            )
            for stage, (before_s, after_s) in enumerate(pairwise([0.0, *sends_s, 0.0]))
        ]
        chain = simulate(actions, times).critical_path
        found[path_of(chain, home)] = None
    return list(found)
