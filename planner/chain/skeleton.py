"""A model without its weights: parameters on meta, buffers real.

Each stage builds the whole model this way, in a second and in a few MiB, and
then fills in only the parameters of its own layers. Buffers stay real because
they are computed by constructors (rotary frequencies, causal masks) and cannot
be loaded from a checkpoint.
"""

from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from planner.chain.source import ModelSource, build_model

# Smaller parameters that a constructor filled in keep their values: not every
# model's weight initialisation sets them again.
_SMALL = 2**16


class _EmptyOnMeta(TorchFunctionMode):
    """Sends `torch.empty`, which every large layer is born from, to meta."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.empty:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


def build_skeleton(
    source: ModelSource, *, dtype: torch.dtype, attention: str
) -> torch.nn.Module:
    """Construct a model whose large parameters occupy no memory.

    Args:
        source: The model.
        dtype: Of its parameters.
        attention: Attention implementation of transformers, such as `sdpa`.

    Returns:
        The model in training mode: buffers and small parameters that a
        constructor filled in are real, all others are on meta.

    Raises:
        ModelError: transformers cannot build it.
    """
    if source.factory is not None:
        # What the factory makes are the weights, too.
        return build_model(source, dtype=dtype, attention=attention)
    handle = register_module_parameter_registration_hook(_large_to_meta)  # type: ignore[arg-type]
    try:
        with _EmptyOnMeta():
            return build_model(source, dtype=dtype, attention=attention)
    finally:
        handle.remove()


def _large_to_meta(
    module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None
) -> torch.nn.Parameter | None:
    if parameter is None or parameter.is_meta or parameter.numel() <= _SMALL:
        return None
    return torch.nn.Parameter(
        parameter.to("meta"), requires_grad=parameter.requires_grad
    )
