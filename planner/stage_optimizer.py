"""What ends a step on one stage: gradients are clipped, the optimizer steps.

bfloat16 weights are too coarse for small updates, so a bfloat16 parameter has an
fp32 master copy; the optimizer steps the copy and the result is rounded back.
Parameters are stepped one by one, so that the fp32 gradient of only one of them
exists at a time.
"""

from collections.abc import Callable, Iterable

import torch

from planner.errors import WishError


class StageOptimizer:
    """Steps the parameters of one stage.

    Args:
        name: `adamw` or `sgd`.
        parameters: Each tensor once.
        weight_decay: Of matrices; vectors (norms, biases) have none.
    """

    def __init__(
        self,
        name: str,
        parameters: Iterable[torch.nn.Parameter],
        *,
        weight_decay: float = 0.0,
    ):
        check_optimizer(name)
        self._pairs: list[tuple[torch.nn.Parameter, torch.nn.Parameter]] = []
        for parameter in parameters:
            master = parameter
            if parameter.dtype != torch.float32:
                master = torch.nn.Parameter(parameter.detach().float())
            self._pairs.append((parameter, master))
        self._optimizers = [
            _MAKERS[name]([master], weight_decay if master.ndim > 1 else 0.0)
            for _, master in self._pairs
        ]

    def step(self, lr: float) -> None:
        """Update all parameters from their gradients and drop the gradients.

        Args:
            lr: Learning rate of this step.
        """
        for (parameter, master), optimizer in zip(
            self._pairs, self._optimizers, strict=True
        ):
            if parameter.grad is None:
                continue
            if master is not parameter:
                master.grad = parameter.grad.float()
                parameter.grad = None
            optimizer.param_groups[0]["lr"] = lr
            optimizer.step()
            master.grad = None
            if master is not parameter:
                with torch.no_grad():
                    parameter.copy_(master)

    def states(self, names: Iterable[str]) -> dict[str, dict[str, torch.Tensor]]:
        """All tensors that a checkpoint must keep besides the weights.

        Args:
            names: Of the parameters, in the order they were given.

        Returns:
            Parameter name to its tensors, such as `exp_avg` or `master`.
        """
        found = {}
        for name, (parameter, master), optimizer in zip(
            names, self._pairs, self._optimizers, strict=True
        ):
            state = optimizer.state[master].items() if master in optimizer.state else ()
            found[name] = {k: v for k, v in state if isinstance(v, torch.Tensor)}
            if master is not parameter:
                found[name]["master"] = master.detach()
        return found


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
    if name not in _MAKERS:
        msg = (
            f"the optimizer '{name}' cannot be run; solve again with --optimizer "
            f"{' or '.join(_MAKERS)}"
        )
        raise WishError(msg)


def _adamw(params: list[torch.nn.Parameter], decay: float) -> torch.optim.Optimizer:
    # Fused: the other implementations allocate temporaries as large as the weights.
    return torch.optim.AdamW(params, weight_decay=decay, fused=True)


def _sgd(params: list[torch.nn.Parameter], decay: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=1.0, weight_decay=decay, fused=True)


_MAKERS: dict[
    str, Callable[[list[torch.nn.Parameter], float], torch.optim.Optimizer]
] = {"adamw": _adamw, "sgd": _sgd}
