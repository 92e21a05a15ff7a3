"""Gradients that belong to more than one stage.

A tied parameter lives on every stage that uses it. Each holder has only its
own share of the gradient; after the schedule the shares are summed, so that the
copies take the same optimizer step and stay equal bit for bit.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from planner.chain.layers import Chain
from planner.errors import RunError
from planner.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """A parameter that several stages hold.

    Attributes:
        name: Canonical name of the parameter.
        stages: The stages that hold it, ascending; the first one owns it.
    """

    name: str
    stages: tuple[int, ...]


def find_ties(plan: Plan, chain: Chain) -> tuple[Tie, ...]:
    """Which parameters are held by more than one stage of a plan.

    Args:
        plan: The plan.
        chain: The model's layers.

    Returns:
        One entry a parameter.
    """
    ties = []
    for names in chain.tied:
        layers = {x.name for x in chain.layers if set(names) & set(x.parameters)}
        holders = [s.index for s in plan.stages if layers & set(s.layers)]
        if len(holders) > 1:
            ties.append(Tie(name=names[0], stages=tuple(holders)))
    return tuple(ties)


class TiedGradients:
    """Sums the gradients of tied parameters over the stages that hold them.

    Args:
        ties: All ties of the plan; every stage passes the same.
        parameters: This stage's parameters by canonical name.
        stage: This stage's index.
    """

    def __init__(
        self,
        ties: tuple[Tie, ...],
        parameters: dict[str, torch.nn.Parameter],
        stage: int,
    ):
        holders = dict.fromkeys(tie.stages for tie in ties)
        groups = {stages: dist.new_group(list(stages)) for stages in holders}
        self._shared = [
            (parameters[tie.name], groups[tie.stages])
            for tie in ties
            if stage in tie.stages
        ]
        self._own_ties = [tie for tie in ties if stage in tie.stages]
        foreign = {tie.name for tie in ties if stage in tie.stages[1:]}
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
            RunError: A copy differs from that of the stage that owns it.
        """
        for tie, (parameter, group) in zip(self._own_ties, self._shared, strict=True):
            owned = parameter.detach().clone()
            dist.broadcast(owned, src=tie.stages[0], group=group)
            if not torch.equal(owned, parameter):
                msg = (
                    f"the copies of the tied parameter {tie.name} on stages "
                    f"{', '.join(map(str, tie.stages))} have drifted apart"
                )
                raise RunError(msg)
