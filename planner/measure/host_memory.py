"""The host's memory, kept by the process as a card's allocator keeps the card's.

The C library gives freed memory back to the system, which hands out the next as
pages of zeros, one fault each. A stage that frees the activations of one microbatch
to allocate those of the next spends a fifth of its time on that (SmolLM2-135M, two
processes on two cores, one run each: 9.8 s a step against 7.9 s), and a layer that is
timed alone spends little of it. Kept memory is written over instead.

Known limitations: glibc only; elsewhere nothing changes. The most that the process
ever used stays with it to its end.
"""

import ctypes
from typing import Any

# malloc.h of glibc: what to give back from the end of the heap, and how many
# allocations may be pages of their own, which go back as soon as they are freed.
_TRIM_THRESHOLD, _NEVER = -1, -1
_MMAP_MAX, _NONE = -4, 0


def keep_freed_memory() -> bool:
    """Keep what this process frees, from now on.

    Returns:
        Whether the C library can.
    """
    mallopt: Any = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _NEVER) and mallopt(_MMAP_MAX, _NONE))
