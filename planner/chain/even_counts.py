"""How many rows each expert gets, where there are no values to count.

Fake tensors have no values. Code that sorts rows by expert asks how often each
number occurs and cuts the rows accordingly; as an answer, all occur equally often.
"""

from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

BINCOUNT = torch.ops.aten.bincount.default


def even_counts(
    numbers: torch.Tensor, weights: Any = None, minlength: int = 0
) -> torch.Tensor | None:
    """What `bincount` would give if all numbers occurred equally often.

    Args:
        numbers: A fake tensor of one dimension.
        weights: Of the numbers; not known how to count with them.
        minlength: How many numbers there are.

    Returns:
        A real tensor, (minlength,), with the sum of all counts right; None if it
        cannot be told.
    """
    if weights is not None or not minlength:
        return None
    share, rest = divmod(numbers.numel(), minlength)
    with unset_fake_temporarily():
        counts = torch.full((minlength,), share)
        counts[:rest] += 1
    return counts
