"""Gradients that belong to more than one stage: ties and the global norm.

A tied parameter lives on every stage that uses it. Each holder has only its
own share of the gradient; after the schedule the shares are summed, so that the
copies take the same optimizer step and stay equal bit for bit.
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


def squared_norm(parameters: Iterable[torch.nn.Parameter]) -> float:
    """Square of the norm of all gradients together.

    Args:
        parameters: Each tensor once.

    Returns:
        Sum of the squares of all gradient elements.
    """
    # In fp32, or the sum would depend on how bfloat16 rounds on each stage.
    norms = [
        torch.linalg.vector_norm(p.grad, dtype=torch.float32)
        for p in parameters
        if p.grad is not None
    ]
    return float(torch.stack(norms).square().sum()) if norms else 0.0


def clip(
    parameters: Iterable[torch.nn.Parameter], norm: float, max_norm: float
) -> None:
    """Scale gradients down to a largest norm, with one factor for all stages.

    Args:
        parameters: This stage's parameters.
        norm: Global norm over all stages.
        max_norm: Largest norm allowed; 0 is off.
    """
    if not max_norm:
        return
    # The same factor as torch.nn.utils.clip_grad_norm_, which knows one process.
    factor = max_norm / (norm + 1e-6)
    if factor < 1:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)
