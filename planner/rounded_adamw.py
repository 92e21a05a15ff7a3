"""AdamW of a bfloat16 parameter without a master copy: torchao's own.

Weight, gradient and both states are bfloat16. A small update would round away, so
the new weight is rounded up or down at random, with the chance that its fp32 value
asks for: right on average.

Every copy of a parameter draws the same numbers, whatever the plan and the process:
they follow from its name and the number of the step.

torchao works on fp32 copies, so a large parameter is stepped piece by piece.

Known limitations: the states are rounded to the nearest, so the mean of the squares,
which moves by a thousandth of itself a step, falls late after large gradients. The
step is run operation by operation; torchao would compile it, which needs a compiler.
"""

import contextlib
import hashlib
import logging
from collections.abc import Iterator
from typing import Any

import torch

from planner.optimizers import ROUNDED_CHUNK


class RoundedAdamW:
    """Steps one parameter.

    Args:
        parameter: In bfloat16, its elements without gaps.
        weight_decay: Decoupled.
        name: That copies on other devices have, too.
    """

    def __init__(
        self, parameter: torch.nn.Parameter, *, weight_decay: float, name: str
    ):
        self._parameter, self._name = parameter, name
        self._chunks = [
            torch.nn.Parameter(chunk) for chunk in _pieces(parameter.detach())
        ]
        self._optimizer = _torchao_adamw()(
            self._chunks, lr=0.0, weight_decay=weight_decay, bf16_stochastic_round=True
        )
        self._states: dict[str, torch.Tensor] = {}

    def step(self, lr: float) -> None:
        """Update the parameter from its gradient and drop that.

        Args:
            lr: Learning rate of this step.
        """
        parameter, grad = self._parameter, self._parameter.grad
        if grad is None:
            return
        if grad.stride() != parameter.stride():
            grad = torch.empty_like(parameter).copy_(grad)
        if not self._states:
            self.restore(
                {
                    "step": torch.tensor(0.0),
                    "exp_avg": torch.zeros_like(parameter.detach()),
                    "exp_avg_sq": torch.zeros_like(parameter.detach()),
                }
            )
        for chunk, own in zip(self._chunks, _pieces(grad), strict=True):
            chunk.grad = own
        (group,) = self._optimizer.param_groups
        group["lr"].fill_(lr)
        number = int(self._states["step"]) + 1
        with _drawing(f"{self._name} {number}", parameter.device), _run_as_written():
            self._optimizer.step()
        for chunk in self._chunks:
            chunk.grad = None
        parameter.grad = None
        self._states["step"].fill_(number)

    def states(self) -> dict[str, torch.Tensor]:
        """What a checkpoint must keep besides the weight.

        Returns:
            The number of steps and two tensors of the parameter's shape, bfloat16;
            nothing before the first step.
        """
        return dict(self._states)

    def restore(self, states: dict[str, torch.Tensor]) -> None:
        """Go on from the states of a checkpoint.

        Args:
            states: As `states` returned them, on the parameter's device; kept.
        """
        self._states = dict(states)
        if not states:
            self._optimizer.state.clear()
            return
        moments = [_pieces(states[x]) for x in ("exp_avg", "exp_avg_sq")]
        for chunk, mean, square in zip(self._chunks, *moments, strict=True):
            self._optimizer.state[chunk] = {
                "step": states["step"].clone(),
                "exp_avg": mean,
                "exp_avg_sq": square,
            }


def _pieces(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """All elements in the order in which they lie in memory, without a copy."""
    return torch.split(tensor.as_strided((tensor.numel(),), (1,)), ROUNDED_CHUNK)


@contextlib.contextmanager
def _drawing(what: str, device: torch.device) -> Iterator[None]:
    """Random numbers that follow from a text."""
    digest = hashlib.sha256(what.encode()).digest()
    cards = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cards):
        torch.manual_seed(int.from_bytes(digest[:8], "big", signed=True))
        yield


def _run_as_written() -> contextlib.AbstractContextManager[Any]:
    stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance(
        "force_eager"
    )
    return stance


def _torchao_adamw() -> Any:
    """Its class. Its import warns of kernels for cards that nobody asked for."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        from torchao.optim import _AdamW  # type: ignore[import-untyped]
    finally:
        logging.disable(before)
    return _AdamW
