"""Gradients that belong to more than one device.

A tied parameter lives on every device with a stage that uses it; the stages of one
device share it. Each holder has only its own share of the gradient; after the
schedule the shares are summed, so that the copies take the same optimizer step and
stay equal bit for bit.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import torch
import torch.distributed as dist

from planner.chain.layers import Chain
from planner.errors import RunError
from planner.plan import Plan
from planner.runtime.place import Place


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
        place: Where this process is.
        num_devices: Of one copy of the pipeline.

    Attributes:
        owned: The parameters that this device counts, and saves in the first copy.
    """

    def __init__(
        self,
        ties: tuple[Tie, ...],
        parameters: dict[str, torch.nn.Parameter],
        place: Place,
        num_devices: int,
    ):
        device, own = place.device, place.copy * num_devices
        groups = {}
        for copy, tie in product(range(place.num_copies), ties):
            ranks = tuple(copy * num_devices + holder for holder in tie.devices)
            if ranks not in groups:
                groups[ranks] = dist.new_group(sorted(ranks))
        self._own_ties = [tie for tie in ties if device in tie.devices]
        self._shared = []
        for tie in self._own_ties:
            ranks = tuple(own + holder for holder in tie.devices)
            self._shared.append((parameters[tie.name], ranks[0], groups[ranks]))
        foreign = {tie.name for tie in ties if device in tie.devices[1:]}
        self.owned = [p for name, p in parameters.items() if name not in foreign]

    def exchange(self) -> None:
        """Sum the shares; afterwards every holder has the whole gradient."""
        for parameter, _, group in self._shared:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad, group=group)

    def check_copies(self) -> None:
        """Make sure that all copies of a tied parameter are equal bit for bit.

        Raises:
            RunError: A copy differs from that of the device that owns it.
        """
        for tie, (parameter, owner, group) in zip(
            self._own_ties, self._shared, strict=True
        ):
            owned = parameter.detach().clone()
            dist.broadcast(owned, src=owner, group=group)
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
