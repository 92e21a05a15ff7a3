"""Gradients that belong to more than one device.

A tied parameter lives on every device with a stage that uses it; the stages of one
device share it. Each holder has only its own share of the gradient; after the
schedule the shares are summed, so that the copies take the same optimizer step and
stay equal bit for bit.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from planner.chain.layers import Chain
from planner.errors import RunError
from planner.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """A parameter that several devices hold.

    Attributes:
        name: Canonical name of the parameter.
        stages: The stages that use it, ascending.
        devices: The devices of these stages, each once; that of the first stage
            comes first and owns it.
    """

    name: str
    stages: tuple[int, ...]
    devices: tuple[int, ...]


def find_ties(plan: Plan, chain: Chain) -> tuple[Tie, ...]:
    """Which parameters are held by more than one device of a plan.

    Args:
        plan: The plan.
        chain: The model's layers.

    Returns:
        One entry a parameter.
    """
    ties = []
    for names in chain.tied:
        layers = {x.name for x in chain.layers if set(names) & set(x.parameters)}
        stages = tuple(s.index for s in plan.stages if layers & set(s.layers))
        devices = tuple(dict.fromkeys(plan.device_of_stage[s] for s in stages))
        if len(devices) > 1:
            ties.append(Tie(name=names[0], stages=stages, devices=devices))
    return tuple(ties)


class TiedGradients:
    """Sums the gradients of tied parameters over the devices that hold them.

    Args:
        ties: All ties of the plan; every device passes the same.
        parameters: This device's parameters by canonical name.
        device: This device's row of the schedule.

    Attributes:
        owned: The parameters that this device counts and saves.
    """

    def __init__(
        self,
        ties: tuple[Tie, ...],
        parameters: dict[str, torch.nn.Parameter],
        device: int,
    ):
        holders = dict.fromkeys(tie.devices for tie in ties)
        groups = {devices: dist.new_group(sorted(devices)) for devices in holders}
        self._own_ties = [tie for tie in ties if device in tie.devices]
        self._shared = [
            (parameters[tie.name], groups[tie.devices]) for tie in self._own_ties
        ]
        foreign = {tie.name for tie in ties if device in tie.devices[1:]}
        self.owned = [p for name, p in parameters.items() if name not in foreign]

    def exchange(self) -> None:
        """Sum the shares; afterwards every holder has the whole gradient."""
        for parameter, group in self._shared:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad, group=group)

    def check_copies(self) -> None:
        """Make sure that all copies of a tied parameter are equal bit for bit.

        Raises:
            RunError: A copy differs from that of the device that owns it.
        """
        for tie, (parameter, group) in zip(self._own_ties, self._shared, strict=True):
            owned = parameter.detach().clone()
            dist.broadcast(owned, src=tie.devices[0], group=group)
            if not torch.equal(owned, parameter):
                msg = (
                    f"the copies of the tied parameter {tie.name} on stages "
                    f"{', '.join(map(str, tie.stages))} have drifted apart"
                )
                raise RunError(msg)


def lay_out_like_parameters(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Give every gradient the memory layout of its parameter.

    B leaves it so; W leaves what the operation made, such as a transposed matrix,
    which can neither be exchanged nor be stepped by a fused optimizer.

    Args:
        parameters: Whose gradients; in place.
    """
    for parameter in parameters:
        grad = parameter.grad
        if grad is not None and grad.stride() != parameter.stride():
            parameter.grad = torch.empty_like(parameter).copy_(grad)
