"""Stand-ins for modules of other stages: they return zeros of the right shape."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map


def stand_in(
    module: torch.nn.Module, device: Callable[[], torch.device]
) -> Callable[..., Any]:
    """A forward that computes nothing.

    Args:
        module: The real one; its shapes are found by running a copy on meta.
        device: Tells where the zeros belong, when it is called.

    Returns:
        Zeros of the shape and dtype that the module would return.
    """
    twin = _meta_copy(module).forward

    def to_meta(value: Any) -> Any:
        return value.to("meta") if isinstance(value, torch.Tensor) else value

    def zeros(value: Any) -> Any:
        # Not expanded from one zero: models write into what they embed.
        if isinstance(value, torch.Tensor):
            return torch.zeros(value.shape, dtype=value.dtype, device=device())
        return value

    def forward(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            output = twin(*tree_map(to_meta, args), **tree_map(to_meta, kwargs))
        return tree_map(zeros, output)

    return forward


def _meta_copy(module: torch.nn.Module) -> torch.nn.Module:
    """A copy of a module whose tensors have no memory."""
    tensors: dict[int, Any] = {
        id(p): torch.nn.Parameter(p.detach().to("meta")) for p in module.parameters()
    }
    tensors |= {id(buffer): buffer.to("meta") for buffer in module.buffers()}
    return copy.deepcopy(module, tensors)
