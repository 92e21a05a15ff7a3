"""Recompute: a layer that keeps its inputs only and runs again before its backward.

What autograd would keep from F is left empty, and filled by a second F when the
first piece of it is asked for:

    F   keeps the inputs         B   fills, uses and frees piece by piece
                                 I   fills and uses; W uses again and frees

`torch.utils.checkpoint` does the same for B, but fills anew for every call of
autograd: under a split backward I would run the layer once more and W once more for
each of its parameters, ten times for a block of Llama.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import get_device_states, set_device_states


def recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A layer's forward that keeps its inputs only and runs again before B or I.

    Args:
        forward: The layer's own.

    Returns:
        The same function with recompute.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        call = _Call(forward, args, kwargs)
        with saved_tensors_hooks(call.leave_empty, call.fill):
            return forward(*args, **kwargs)

    return run


class _Slot:
    """The place of one tensor that autograd would keep; it fills its call's."""

    __slots__ = ("__weakref__", "call", "shape", "tensor")

    def __init__(self, call: "_Call", shape: torch.Size):
        self.call = call
        self.shape = shape
        self.tensor: torch.Tensor | None = None


class _AllFilled(BaseException):
    """Ends the second run: what would follow is of no use."""


class _Call:
    """One call of a layer, and what is needed to run it again.

    Autograd holds the slots, each slot the call; the call forgets slots that
    autograd has freed. So all is gone as soon as the graph is.
    """

    def __init__(
        self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ):
        self._forward = forward
        self._args, self._kwargs = tree_map(_cut_off, (args, kwargs))
        self._versions = self._current_versions()
        self._cpu_state = torch.get_rng_state()
        self._devices, self._states = get_device_states(*args)
        self._slots: list[weakref.ref[_Slot]] = []
        self._num_filled = 0

    def leave_empty(self, tensor: torch.Tensor) -> _Slot:
        """What autograd keeps in place of a tensor."""
        slot = _Slot(self, tensor.shape)
        self._slots.append(weakref.ref(slot))
        return slot

    def fill(self, slot: _Slot) -> torch.Tensor:
        """The tensor of a slot."""
        if slot.tensor is None:
            self._run_again()
        if slot.tensor is None:
            msg = "a recomputed layer made fewer tensors than the first time"
            raise RuntimeError(msg)
        return slot.tensor

    def _run_again(self) -> None:
        if self._current_versions() != self._versions:
            msg = "an input of a recomputed layer was changed in place after its F"
            raise RuntimeError(msg)
        self._num_filled = 0
        try:
            with (
                torch.random.fork_rng(self._devices),
                torch.enable_grad(),
                saved_tensors_hooks(self._keep, _never),
            ):
                torch.set_rng_state(self._cpu_state)
                set_device_states(self._devices, self._states)
                self._forward(*self._args, **self._kwargs)
        except _AllFilled:
            pass

    def _keep(self, tensor: torch.Tensor) -> None:
        slot = self._slots[self._num_filled]()
        self._num_filled += 1
        if slot is not None:
            if slot.shape != tensor.shape:
                msg = (
                    f"a recomputed layer made a tensor of shape {tuple(tensor.shape)} "
                    f"where it was {tuple(slot.shape)} the first time"
                )
                raise RuntimeError(msg)
            slot.tensor = tensor.detach()
        if self._num_filled == len(self._slots):
            raise _AllFilled

    def _current_versions(self) -> list[int]:
        """How often each input was changed in place."""
        leaves = tree_leaves((self._args, self._kwargs))
        return [x._version for x in leaves if isinstance(x, torch.Tensor)]


def _cut_off(value: Any) -> Any:
    """A tensor without what it was made from; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def _never(_: Any) -> torch.Tensor:
    msg = "the graph of a second F has no backward"
    raise RuntimeError(msg)
