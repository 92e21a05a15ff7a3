"""What ends a step on one stage: gradients are clipped, the optimizer steps.

bfloat16 weights are too coarse for small updates, so a bfloat16 parameter has an
fp32 master copy; the optimizer steps the copy and the result is rounded back. Where
that takes too much room, `adamw-bf16` rounds at random instead, see `rounded_adamw`.
Parameters are stepped one by one, so that the fp32 gradient of only one of them
exists at a time.
"""

from collections.abc import Callable, Iterable
from itertools import chain, count

import torch

from planner.errors import WishError
from planner.optimizers import OPTIMIZERS
from planner.rounded_adamw import RoundedAdamW


class StageOptimizer:
    """Steps the parameters of one stage.

    Args:
        name: `adamw`, `adamw-bf16` or `sgd`.
        parameters: Each tensor once.
        weight_decay: Of matrices; vectors (norms, biases) have none.
        names: Of the parameters, where copies on other devices must take the very
            same step; none for numbers.
    """

    def __init__(
        self,
        name: str,
        parameters: Iterable[torch.nn.Parameter],
        *,
        weight_decay: float = 0.0,
        names: Iterable[str] = (),
    ):
        check_optimizer(name)
        own_names = chain(names, map(str, count()))
        self._steps: list[_Mastered | RoundedAdamW] = []
        for parameter, own_name in zip(parameters, own_names, strict=False):
            decay = weight_decay if parameter.ndim > 1 else 0.0
            if name == "adamw-bf16":
                step: _Mastered | RoundedAdamW = RoundedAdamW(
                    parameter, weight_decay=decay, name=own_name
                )
            else:
                step = _Mastered(parameter, _MAKERS[name], decay)
            self._steps.append(step)

    def step(self, lr: float) -> None:
        """Update all parameters from their gradients and drop the gradients.

        Args:
            lr: Learning rate of this step.
        """
        for step in self._steps:
            step.step(lr)

    def states(self, names: Iterable[str]) -> dict[str, dict[str, torch.Tensor]]:
        """All tensors that a checkpoint must keep besides the weights.

        Args:
            names: Of the parameters, in the order they were given.

        Returns:
            Parameter name to its tensors, such as `exp_avg` or `master`.
        """
        return {
            name: step.states() for name, step in zip(names, self._steps, strict=True)
        }

    def restore(self, states: Iterable[dict[str, torch.Tensor]]) -> None:
        """Go on from the states of a checkpoint.

        Args:
            states: Of every parameter, in the order they were given, as `states`
                returned them, on the device of the parameter; they are kept.
        """
        for state, step in zip(states, self._steps, strict=True):
            step.restore(state)


class _Mastered:
    """Steps one parameter in fp32, in a copy if it is coarser than that."""

    def __init__(
        self, parameter: torch.nn.Parameter, make: "_Maker", weight_decay: float
    ):
        self._parameter = self._master = parameter
        if parameter.dtype != torch.float32:
            self._master = torch.nn.Parameter(parameter.detach().float())
        self._optimizer = make([self._master], weight_decay)

    def step(self, lr: float) -> None:
        parameter, master = self._parameter, self._master
        if parameter.grad is None:
            return
        if master is not parameter:
            master.grad = parameter.grad.float()
            parameter.grad = None
        self._optimizer.param_groups[0]["lr"] = lr
        self._optimizer.step()
        master.grad = None
        if master is not parameter:
            with torch.no_grad():
                parameter.copy_(master)

    def states(self) -> dict[str, torch.Tensor]:
        state = self._optimizer.state.get(self._master, {})
        found = {k: v for k, v in state.items() if isinstance(v, torch.Tensor)}
        if self._master is not self._parameter:
            found["master"] = self._master.detach()
        return found

    def restore(self, states: dict[str, torch.Tensor]) -> None:
        own = {key: x for key, x in states.items() if key != "master"}
        if "master" in states:
            self._master.data = states["master"]
        groups = self._optimizer.state_dict()["param_groups"]
        kept = {0: own} if own else {}
        self._optimizer.load_state_dict({"state": kept, "param_groups": groups})


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


def check_optimizer(name: str) -> None:
    """Make sure that an optimizer can be run.

    Args:
        name: Of a plan.

    Raises:
        WishError: It cannot.
    """
    if name not in OPTIMIZERS:
        msg = (
            f"the optimizer '{name}' cannot be run; solve again with --optimizer "
            f"{', '.join(OPTIMIZERS[:-1])} or {OPTIMIZERS[-1]}"
        )
        raise WishError(msg)


def _adamw(params: list[torch.nn.Parameter], decay: float) -> torch.optim.Optimizer:
    # Fused: the other implementations allocate temporaries as large as the weights.
    return torch.optim.AdamW(params, weight_decay=decay, fused=True)


def _sgd(params: list[torch.nn.Parameter], decay: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=1.0, weight_decay=decay, fused=True)


_Maker = Callable[[list[torch.nn.Parameter], float], torch.optim.Optimizer]
_MAKERS: dict[str, _Maker] = {"adamw": _adamw, "sgd": _sgd}
