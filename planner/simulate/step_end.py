"""The end of a step: from the last B or W to weights that have moved.

    device 0  F F B B |tie| reduce |     all | clip, optimizer |
    device 1  F F B B B B |        reduce|   | clip, optimizer    |
    device 2  F B F B ..  |tie| reduce |     |                    ^ step_s

The gradient of a tied parameter is summed over the devices that hold it, as soon as
all of them are done. Copies of a device, if it has any, then sum their gradients.
All devices wait for one another, because the norm that clips is of all gradients,
and only then does each take its optimizer step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cards import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEnd:
    """What one device does after its last action.

    Attributes:
        reduce_s: Summing its gradients over its copies; 0 without copies [s].
        optimizer_s: Clipping and the optimizer step of all its stages [s].
    """

    reduce_s: float = 0.0
    optimizer_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TieExchange:
    """Summing the gradient of one tied parameter.

    Attributes:
        devices: That hold it; one alone has nothing to exchange.
        exchange_s: From when all of them are done, see `all_reduce_s` [s].
    """

    devices: tuple[int, ...]
    exchange_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd:
    """When a step ends.

    Attributes:
        gradients_s: When each device has its whole gradients [s].
        together_s: When all have, and know the norm [s].
        step_s: When the slowest has taken its optimizer step [s].
    """

    gradients_s: tuple[float, ...]
    together_s: float
    step_s: float


def end_of_step(
    device_ends_s: Sequence[float],
    devices: Sequence[DeviceEnd],
    *,
    ties: Sequence[TieExchange] = (),
    agree_s: float = 0.0,
) -> StepEnd:
    """Go on from where a timeline ends.

    Args:
        device_ends_s: When each device has done its last action, see `Timeline` [s].
        devices: One entry a device.
        ties: In the order in which every holder exchanges them.
        agree_s: Adding up the norm over all devices [s].

    Returns:
        When the step ends; without ties, copies and `agree_s` at the makespan and
        the slowest optimizer step.
    """
    ready_s = list(device_ends_s)
    for tie in ties:
        if len(set(tie.devices)) > 1:
            done_s = max(ready_s[device] for device in tie.devices) + tie.exchange_s
            for device in tie.devices:
                ready_s[device] = done_s
    gradients_s = tuple(
        end_s + device.reduce_s for end_s, device in zip(ready_s, devices, strict=True)
    )
    together_s = max(gradients_s, default=0.0) + agree_s
    slowest_s = max((device.optimizer_s for device in devices), default=0.0)
    return StepEnd(
        gradients_s=gradients_s,
        together_s=together_s,
        step_s=together_s + slowest_s,
    )


def all_reduce_s(num_bytes: int, num_devices: int, link: Link) -> float:
    """Time to sum a tensor over devices that form a ring.

    Each of h devices sends 2 (h - 1) pieces of 1/h of the tensor. Source: Patarasuk
    and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations".

    Args:
        num_bytes: Of the tensor [bytes].
        num_devices: That hold it, at least 1.
        link: The slowest between two of them.

    Returns:
        The time; 0 for one device [s].
    """
    piece_bytes = -(-num_bytes // num_devices)
    return 2 * (num_devices - 1) * link.transfer_s(piece_bytes)
