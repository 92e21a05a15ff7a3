"""Tensors inside nested tuples, lists and dictionaries, found by their path.

Models hand tensors to their blocks as arguments of their own, in a tuple such as
(cos, sin), or in a dictionary with one mask for each kind of attention.
"""

from collections.abc import Hashable, Iterator
from typing import Any

import torch

Path = tuple[Hashable, ...]


def tensors_in(values: Any, path: Path = ()) -> Iterator[tuple[Path, torch.Tensor]]:
    """All tensors, in order.

    Args:
        values: Nested tuples, lists and dictionaries; other objects are not opened.
        path: Where `values` itself is.

    Yields:
        Path and tensor.
    """
    if isinstance(values, torch.Tensor):
        yield path, values
    elif isinstance(values, dict):
        for key, value in values.items():
            yield from tensors_in(value, (*path, key))
    elif isinstance(values, tuple | list):
        for index, value in enumerate(values):
            yield from tensors_in(value, (*path, index))


def value_at(values: Any, path: Path) -> Any:
    """What lies at a path.

    Args:
        values: Nested tuples, lists and dictionaries.
        path: From the outside in.

    Returns:
        The value, or None if the path leads nowhere.
    """
    for key in path:
        try:
            values = values[key]
        except (KeyError, IndexError, TypeError):
            return None
    return values


def with_value_at(values: Any, path: Path, new: Any) -> Any:
    """The same with another value at a path.

    Args:
        values: Nested tuples, lists and dictionaries; they stay as they are.
        path: From the outside in; it exists.
        new: The value to put there.

    Returns:
        A copy along the path.
    """
    if not path:
        return new
    key, *rest = path
    inner = with_value_at(values[key], tuple(rest), new)
    if isinstance(values, dict):
        return {**values, key: inner}
    items = [*values]
    items[key] = inner  # type: ignore[call-overload]
    return type(values)(items) if type(values) in (tuple, list) else tuple(items)


def without_tensors(values: Any) -> Any:
    """The same structure with None for every tensor and every unknown object.

    Args:
        values: Nested tuples, lists and dictionaries.

    Returns:
        Plain tuples, lists and dictionaries.
    """
    if isinstance(values, dict):
        return {key: without_tensors(value) for key, value in values.items()}
    if isinstance(values, list):
        return [without_tensors(value) for value in values]
    if isinstance(values, tuple):
        return tuple(without_tensors(value) for value in values)
    return values if isinstance(values, bool | int | float | str) else None
