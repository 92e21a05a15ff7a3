"""Fake tensors that take the path of real ones.

They have shapes but no memory, and nothing is computed. In two places they
would go another way than real tensors do; here they are led back.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import transformers
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from planner.chain.even_counts import BINCOUNT, even_counts

# What code raises that looks at the values of fake tensors, as experts do that
# pick their rows one by one.
NEED_VALUES = (DataDependentOutputException, DynamicOutputShapeException)


@contextlib.contextmanager
def fake_tensors() -> Iterator[None]:
    """Make all new tensors fake.

    Yields:
        Nothing.
    """
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with _plain_masks(), fake, _MoreOperators():
        yield


@contextlib.contextmanager
def real_tensors() -> Iterator[None]:
    """Make new tensors real again inside `fake_tensors`.

    Yields:
        Nothing.
    """
    with unset_fake_temporarily(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # what looks at values costs what they say
        yield


class _MoreOperators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What experts need and fake tensors do not know.

    Grouped matrix products of fp32 (they know them in bfloat16 only), and how many
    rows each expert gets.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is BINCOUNT:
            counts = even_counts(*args, **kwargs)
            return func(*args, **kwargs) if counts is None else counts
        if func is not torch.ops.aten._grouped_mm.default:
            return func(*args, **kwargs)
        given: torch.dtype = args[0].dtype
        result = func(*tree_map(_to_bfloat16, args), **tree_map(_to_bfloat16, kwargs))
        return result.to(given)


def _to_bfloat16(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.bfloat16()
    return value


@contextlib.contextmanager
def _plain_masks() -> Iterator[None]:
    """Build no mask where a real run without padding does without one.

    transformers looks into position ids for packed sequences; it cannot look
    into fake ones and then builds a mask to be sure. transformers 4 builds one for
    real positions, too.
    """
    masking = getattr(transformers, "masking_utils", None)
    name = "find_packed_sequence_indices"
    find_packed = getattr(masking, name, None)
    if find_packed is None or find_packed(torch.arange(2)[None]) is not None:
        yield
        return
    with mock.patch.object(masking, name, _none_found):
        yield


def _none_found(*_: Any, **__: Any) -> None:
    """In place of a mock, which would keep the tensors it is called with."""
