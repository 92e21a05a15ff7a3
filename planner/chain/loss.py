"""The loss of a microbatch: cross-entropy, and what a model adds to it.

A model of experts may add a balance loss, other models other terms. What a model
adds is found by letting it compute its own loss while every cross-entropy in it
gives zero.
"""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

IGNORED_LABEL = -100

_CROSS_ENTROPIES = (
    torch.nn.functional.cross_entropy,
    torch.nn.functional.nll_loss,
)


def summed_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Next-token cross-entropy, summed over the target tokens.

    Args:
        logits: Shape (batch, seq_len, vocab).
        labels: Target ids, shape (batch, seq_len), not shifted; -100 is ignored.

    Returns:
        A scalar in fp32: divide it by the number of target tokens of the whole
        step, not of the microbatch.
    """
    targets = torch.nn.functional.pad(labels[..., 1:], (0, 1), value=IGNORED_LABEL)
    return torch.nn.functional.cross_entropy(
        logits.float().flatten(0, -2),
        targets.flatten(),
        ignore_index=IGNORED_LABEL,
        reduction="sum",
    )


def num_targets(labels: torch.Tensor) -> torch.Tensor:
    """How many tokens are predicted.

    Args:
        labels: Target ids, shape (batch, seq_len), not shifted; -100 is ignored.

    Returns:
        A scalar.
    """
    return (labels[..., 1:] != IGNORED_LABEL).sum()


class NoCrossEntropy(TorchFunctionMode):
    """While active, every cross-entropy gives zero."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in _CROSS_ENTROPIES:
            return args[0].new_zeros((), dtype=torch.float32)
        return func(*args, **(kwargs or {}))


def leaves_of(loss: torch.Tensor) -> list[torch.Tensor]:
    """All tensors that a backward from a loss would give a gradient.

    Args:
        loss: With its graph.

    Returns:
        The leaves of the graph.
    """
    found: list[torch.Tensor] = []
    seen: set[Any] = set()
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        waiting += [inner for inner, _ in node.next_functions]
    return found


def logits_of(output: Any) -> torch.Tensor:
    """The logits that a model returned.

    Args:
        output: Of a model of transformers, with or without a loss.

    Returns:
        The logits, (batch, seq_len, vocab).
    """
    if not isinstance(output, tuple):
        found: torch.Tensor = output.logits
        return found
    return next(x for x in output if isinstance(x, torch.Tensor) and x.dim())


def loss_of(output: Any) -> torch.Tensor | None:
    """The loss that a model returned.

    Args:
        output: Of a model of transformers that was given labels.

    Returns:
        A scalar, or None if it computed none.
    """
    if isinstance(output, tuple):
        first = output[0]
        return first if isinstance(first, torch.Tensor) and not first.dim() else None
    loss = getattr(output, "loss", None)
    return loss if isinstance(loss, torch.Tensor) else None
