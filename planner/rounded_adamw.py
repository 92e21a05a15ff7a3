"""AdamW of a bfloat16 parameter without a master copy.

Weight, gradient and both states are bfloat16. torch's own AdamW steps fp32 copies of
a piece of the parameter; then weight and states are rounded. A small update would
always round away, so it is rounded up or down at random, with the chance that the
fp32 value asks for: right on average.

    fp32   0 01111110 1111111 1100000000000000     0.998, three quarters of the way up
    + 16 random bits, the last 16 cut off      ->  1.0 in three cases of four

Every copy of a parameter draws the same numbers, whatever the plan and the process:
they follow from its name and the number of the step.

Source: Zamirai et al., "Revisiting BFloat16 training". The states are rounded in the
same way: the mean of the squares moves by a thousandth of itself a step, which is a
quarter of what bfloat16 can tell apart.
"""

import hashlib

import torch

from planner.optimizers import ROUNDED_CHUNK

_NUM_CUT_BITS = 16
_KEPT_BITS = -(1 << _NUM_CUT_BITS)
_MOMENTS = ("exp_avg", "exp_avg_sq")


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
        self._parameter = parameter
        self._weight_decay, self._name = weight_decay, name
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
        weight = parameter.detach()
        if not self._states:
            self._states = {key: torch.zeros_like(weight) for key in _MOMENTS}
            self._states["step"] = torch.tensor(0.0)
        generator = self._generator()
        rows = (weight, grad, *(self._states[key] for key in _MOMENTS))
        for pieces in zip(*map(_pieces, rows), strict=True):
            self._step_piece(lr, generator, *pieces)
        self._states["step"] += 1
        parameter.grad = None

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
        if states:
            self._states["step"] = states["step"].cpu()

    def _generator(self) -> torch.Generator:
        """Random numbers that follow from the name and the number of the step."""
        text = f"{self._name} {int(self._states['step'])}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
        return torch.Generator(self._parameter.device).manual_seed(seed)

    def _step_piece(
        self,
        lr: float,
        generator: torch.Generator,
        weight: torch.Tensor,
        grad: torch.Tensor,
        *moments: torch.Tensor,
    ) -> None:
        exact = torch.nn.Parameter(weight.float())
        exact.grad = grad.float()
        optimizer = torch.optim.AdamW(
            [exact], lr=lr, weight_decay=self._weight_decay, fused=True
        )
        optimizer.state[exact] = {
            "step": self._states["step"].to(weight.device, copy=True),
            **{k: x.float() for k, x in zip(_MOMENTS, moments, strict=True)},
        }
        optimizer.step()
        exact.grad = None
        state = optimizer.state[exact]
        for rounded, value in zip(
            (weight, *moments),
            (exact.detach(), *(state[key] for key in _MOMENTS)),
            strict=True,
        ):
            round_at_random(value, rounded, generator)


def round_at_random(
    exact: torch.Tensor, rounded: torch.Tensor, generator: torch.Generator
) -> None:
    """Round to one of the two neighbours, on average to the value itself.

    Args:
        exact: fp32, any shape.
        rounded: bfloat16 of the same shape; written to.
        generator: Of random numbers, on their device.
    """
    bits = torch.randint(
        1 << _NUM_CUT_BITS,
        exact.shape,
        dtype=torch.int32,
        device=exact.device,
        generator=generator,
    )
    bits.add_(exact.view(torch.int32)).bitwise_and_(_KEPT_BITS)
    rounded.copy_(bits.view(torch.float32))


def _pieces(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """All elements in the order in which they lie in memory, without a copy."""
    return torch.split(tensor.as_strided((tensor.numel(),), (1,)), ROUNDED_CHUNK)
