"""What counts bytes while a layer runs: storages one by one, or CUDA's allocator."""

from types import TracebackType
from typing import Any, Protocol

import torch


class Meter(Protocol):
    """Counts live bytes while active as a context; `LiveBytes` is one."""

    @property
    def current_bytes(self) -> int:
        """Live now [bytes]."""

    @property
    def peak_bytes(self) -> int:
        """Highest since the start or the last `reset_peak` [bytes]."""

    def reset_peak(self) -> None:
        """Forget peaks before now."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any: ...


class AllocatorMeter:
    """The figures of CUDA's allocator, workspaces inside kernels included.

    They are what a run reports as its peak, too.

    Args:
        device: The card.
    """

    def __init__(self, device: torch.device):
        self._device = device

    @property
    def current_bytes(self) -> int:
        """Live now [bytes]."""
        return int(torch.cuda.memory_allocated(self._device))

    @property
    def peak_bytes(self) -> int:
        """Highest since the start or the last `reset_peak` [bytes]."""
        return int(torch.cuda.max_memory_allocated(self._device))

    def reset_peak(self) -> None:
        """Forget peaks before now."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def __enter__(self) -> "AllocatorMeter":
        return self

    def __exit__(self, *_: object) -> None:
        pass
