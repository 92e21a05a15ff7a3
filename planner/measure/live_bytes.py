"""Live tensor bytes, followed storage by storage.

Every storage that an operation makes is counted from its birth until it is
freed, once however many tensors view it. Tensors that existed before are found
through the garbage collector. It works on fake tensors as on real ones.

Autograd adds a second gradient into the first one if nobody else holds that, but not
while operations are watched: then it makes a new tensor and drops the old one. Such a
sum is counted as what it would be otherwise, no memory of its own.

Known limitations: memory that an operation takes and frees inside itself is not
seen (on the CPU, the scratch space of matrix products).
"""

import gc
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_ADD = torch.ops.aten.add.Tensor
# Who holds a storage that belongs to one tensor: that, and Python while it looks.
_HELD_ONCE = 2


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts live bytes while active as a context.

    Args:
        tensors: What is live already; None finds all tensors on the CPU.
        granularity: Sizes are rounded up to a multiple of it [bytes]; the
            allocator of CUDA hands out 512 at a time.

    Attributes:
        current_bytes: Live now [bytes].
        peak_bytes: Highest since the start or the last `reset_peak` [bytes].
    """

    def __init__(
        self,
        tensors: Iterable[torch.Tensor] | None = None,
        *,
        granularity: int = 1,
    ):
        super().__init__()  # type: ignore[no-untyped-call]
        self._granularity = granularity
        self.current_bytes = 0
        self.peak_bytes = 0
        self._known: dict[int, Any] = {}
        for tensor in all_tensors() if tensors is None else tensors:
            self._count(tensor)

    def reset_peak(self) -> None:
        """Forget peaks before now."""
        self.peak_bytes = self.current_bytes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        highest_bytes = self.peak_bytes
        is_in_place = func is _ADD and _would_be_in_place(*args)
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf)
        if is_in_place:
            self.peak_bytes = highest_bytes
        return result

    def _count(self, tensor: torch.Tensor) -> None:
        if tensor.is_meta or tensor.layout != torch.strided:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        num_bytes = -(-storage.nbytes() // self._granularity) * self._granularity
        if not num_bytes:
            return
        self._known[key] = weakref.finalize(storage, self._forget, key, num_bytes)
        self._known[key].atexit = False
        self.current_bytes += num_bytes
        self.peak_bytes = max(self.peak_bytes, self.current_bytes)

    def _forget(self, key: int, num_bytes: int) -> None:
        self._known.pop(key, None)
        self.current_bytes -= num_bytes


def _would_be_in_place(old: Any, new: Any) -> bool:
    """Whether autograd, unwatched, would add a gradient into the one before."""
    return (
        not torch.is_grad_enabled()  # a forward, also one that runs again
        and torch._C._current_autograd_node() is not None
        and isinstance(old, torch.Tensor)
        and isinstance(new, torch.Tensor)
        and old.shape == new.shape
        and not old.is_meta
        and torch._C._storage_Use_Count(old.untyped_storage()._cdata) == _HELD_ONCE
    )


def all_tensors(ignore: Iterable[torch.Tensor] = ()) -> list[torch.Tensor]:
    """All tensors on the CPU that Python knows of and still reaches.

    Args:
        ignore: Tensors that are left out, with all views of them.

    Returns:
        Tensors with memory of their own, views of it included.
    """
    gc.collect()
    found = []
    ignored = {tensor.untyped_storage()._cdata for tensor in ignore}
    for thing in gc.get_objects():
        if (
            issubclass(type(thing), torch.Tensor)
            and type(thing).__module__ != "torch._subclasses.fake_tensor"
            and thing.device.type == "cpu"
            and thing.layout == torch.strided
            and thing.untyped_storage()._cdata not in ignored
        ):
            found.append(thing)
    return found
