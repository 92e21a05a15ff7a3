"""What the clock is told: times of the stages, and what a transfer costs whom."""

from dataclasses import dataclass
from typing import Literal


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
class Transfers:
    """Whom a transfer holds up besides the action that waits for it.

    Attributes:
        occupy: Who cannot compute meanwhile. A card's copy engines leave both free
            (`neither`). Where processors copy, as gloo's threads do on a CPU without
            idle cores, it costs `both`: the sender right after the action, the
            receiver before the action that takes what has come, at any time while
            it is on its way or later.
        queued: Whether a link carries one transfer at a time in each direction.
    """

    occupy: Literal["neither", "sender", "both"] = "neither"
    queued: bool = False


# Transfers that hold nobody up.
OVERLAPPED = Transfers()
