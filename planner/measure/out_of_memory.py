"""Running out of memory: how it looks, and which microbatch sizes are tried then."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from planner.errors import ModelError

_Found = TypeVar("_Found")
# What torch says without a class of its own: the CPU's allocator and what CUDA
# allocates past torch's.
_SAYINGS = (
    "can't allocate memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


class OutOfMemoryError(Exception):
    """A layer does not fit on the device it is measured on.

    Its text is the layer and its microbatch. It keeps nothing of the layer alive.
    """


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that it was raised from, is about memory.

    Args:
        error: Anything.

    Returns:
        True if a device or the host had no memory left.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, torch.OutOfMemoryError | MemoryError):
            return True
        if isinstance(seen, RuntimeError) and any(x in str(seen) for x in _SAYINGS):
            return True
        seen = seen.__cause__
    return False


def visit_sizes(
    sizes: Sequence[int],
    visit: Callable[[int], _Found],
    *,
    device: str,
    say: Callable[[str], None],
) -> dict[int, _Found]:
    """Measure at every size that fits, smallest first.

    Args:
        sizes: Microbatch sizes that were asked for. If none fits, halves of the
            smallest are tried.
        visit: Measures all layers at one size.
        device: What the layers run on, in words, with its memory.
        say: Is told which sizes are left out.

    Returns:
        What `visit` returned, by size; at least one.

    Raises:
        ModelError: A layer does not even fit at size 1.
    """
    found: dict[int, _Found] = {}
    waiting = sorted(set(sizes))
    while waiting:
        size = waiting[0]
        try:
            found[size] = visit(size)
        except OutOfMemoryError as error:
            reason = f"{error} does not fit on {device}"
        else:
            waiting = waiting[1:]
            continue
        left_out = ", ".join(map(str, waiting))
        if found:
            say(f"{reason}; left out: microbatch size {left_out}")
            break
        if size == 1:
            msg = (
                f"{reason}; use a shorter --seq-len or a device with more memory, or "
                "compute instead of measuring with --device and a card of `planner "
                "cards`"
            )
            raise ModelError(msg)
        waiting = [size // 2]
        say(f"{reason}; left out: microbatch size {left_out}; trying {size // 2}")
    return found
