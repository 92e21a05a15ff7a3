"""Fake tensors on the CPU that take the kernels which a CUDA card would take.

In two places torch chooses by device what autograd keeps. Dropout keeps a mask of
one byte an element on CUDA, of the input's type on the CPU. Attention has one fused
kernel on the CPU and several on CUDA, each with conditions:

    flash       half precision, no mask, head size of all three alike and at most
                256, compute capability 8.0; not in training with heads of 193-224,
                or above 224 with dropout, on 8.6, 8.9 and 12
    efficient   no grouped queries, head sizes aligned; takes fp32 and masks
    math        everything else; keeps scores of every query and key

The conditions are those that torch's `sdp_utils.cpp` checks, the figures behind
them (kept statistics, padding) those of its meta kernels.

Known limitations: scratch that a fused backward takes and frees inside itself is
not seen (for flash one fp32 gradient of the queries). cuDNN's attention, which a
Hopper card may prefer, keeps what flash keeps and is counted as such.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Kernel = Literal["flash", "efficient", "math"]

_HALF = (torch.float16, torch.bfloat16)
_FLASH_ALIGNMENT = 8
_BIAS_ALIGNMENT = 16
_FLASH_LARGEST_HEAD = 256
# Capabilities whose flash backward has too little shared memory for some heads.
_SMALL_SHARED_MEMORY = ((8, 6), (8, 9), (12, 0), (12, 1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attention:
    """One call of `scaled_dot_product_attention`.

    Attributes:
        query: Shape (batch, heads, queries, head size).
        key: Shape (batch, key heads, keys, head size).
        value: Shape (batch, key heads, keys, value size).
        mask: True or 0 where a query may look; broadcast to (batch, heads,
            queries, keys).
        dropout: Probability.
        is_causal: Whether a query looks at no later key.
        scale: Of the scores; None for 1 / sqrt(head size).
        enable_gqa: Whether several queries' heads share a key head.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None = None
    dropout: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def choose_kernel(call: Attention, capability: tuple[int, int]) -> Kernel:
    """Which kernel torch takes on a card.

    Args:
        call: What is computed.
        capability: Compute capability of the card.

    Returns:
        The first in torch's order that can do it.
    """
    if call.query.dim() != 4:
        return "math"
    if _flash_can(call, capability):
        return "flash"
    return "efficient" if _efficient_can(call, capability) else "math"


def _flash_can(call: Attention, capability: tuple[int, int]) -> bool:
    head = call.query.shape[-1]
    is_square = call.query.shape[-2] == call.key.shape[-2]
    too_large = 192 < head <= 224 or (head > 224 and call.dropout > 0)
    return (
        capability >= (8, 0)
        and call.query.dtype in _HALF
        and call.mask is None
        and head == call.key.shape[-1] == call.value.shape[-1] <= _FLASH_LARGEST_HEAD
        and (is_square or not call.is_causal)
        and not (capability in _SMALL_SHARED_MEMORY and too_large)
    )


def _efficient_can(call: Attention, capability: tuple[int, int]) -> bool:
    is_half = call.query.dtype in _HALF
    if call.query.dtype == torch.bfloat16 and capability < (8, 0):
        return False
    alignment = 8 if is_half else 4 if capability >= (8, 0) else 1
    sizes = (call.query.shape[-1], call.key.shape[-1], call.value.shape[-1])
    same_heads = call.query.shape[1] == call.key.shape[1] == call.value.shape[1]
    return (
        call.query.dtype in (*_HALF, torch.float32)
        and same_heads
        and sizes[0] == sizes[1]
        and all(size % alignment == 0 for size in sizes)
    )


def _flash(call: Attention) -> torch.Tensor:
    head = call.query.shape[-1]
    padding = -head % _FLASH_ALIGNMENT
    padded = [
        functional.pad(x, (0, padding)) if padding else x
        for x in (call.query, call.key, call.value)
    ]
    output: torch.Tensor = torch.ops.aten._scaled_dot_product_flash_attention(
        *padded,
        call.dropout,
        call.is_causal,
        False,
        scale=1 / math.sqrt(head) if call.scale is None else call.scale,
    )[0]
    return output[..., :head] if padding else output


def _efficient(call: Attention) -> torch.Tensor:
    output: torch.Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
        call.query,
        call.key,
        call.value,
        _aligned_bias(call),
        True,
        call.dropout,
        call.is_causal,
        scale=call.scale,
    )[0]
    return output


def _aligned_bias(call: Attention) -> torch.Tensor | None:
    """The mask as what is added to the scores, its rows padded in memory."""
    bias = _bias(call)
    if bias is None:
        return None
    (batch, heads, queries, _), keys = call.query.shape, call.key.shape[-2]
    if padding := -keys % _BIAS_ALIGNMENT:
        bias = functional.pad(bias, (0, padding))[..., :keys]
    return bias.expand(batch, heads, queries, keys)


def _bias(call: Attention) -> torch.Tensor | None:
    if call.mask is None or call.mask.dtype != torch.bool:
        return call.mask
    nothing = torch.zeros((), dtype=call.query.dtype)
    return torch.where(call.mask, nothing, -torch.inf)


def _math(call: Attention) -> torch.Tensor:
    output: torch.Tensor = torch.ops.aten._scaled_dot_product_attention_math(
        call.query,
        call.key,
        call.value,
        _bias(call),
        call.dropout,
        call.is_causal,
        scale=call.scale,
        enable_gqa=call.enable_gqa,
    )[0]
    return output


_KERNELS: dict[Kernel, Callable[[Attention], torch.Tensor]] = {
    "flash": _flash,
    "efficient": _efficient,
    "math": _math,
}


class CudaKernels(TorchFunctionMode):
    """While active, attention and dropout run as on a card.

    Args:
        capability: Compute capability of the card, such as (8, 6).
    """

    def __init__(self, capability: tuple[int, int]):
        super().__init__()
        self._capability = capability

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            call = _read_attention(*args, **kwargs)
            # What looks at values runs on real tensors, by the CPU's own kernels.
            if isinstance(call.query, FakeTensor):
                return _KERNELS[choose_kernel(call, self._capability)](call)
        if func is functional.dropout:
            return _dropout(*args, **kwargs)
        return func(*args, **kwargs)


def _read_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Attention:
    return Attention(
        query=query,
        key=key,
        value=value,
        mask=attn_mask,
        dropout=dropout_p,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=enable_gqa,
    )


def _dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    if inplace or not training or not 0 < p < 1:
        return functional.dropout(input, p, training, inplace)
    output: torch.Tensor = torch.ops.aten.native_dropout(input, p, True)[0]
    return output
