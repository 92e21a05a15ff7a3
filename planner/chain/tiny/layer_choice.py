"""Which layers of a large model a tiny one keeps: two of each kind.

A configuration tells its layers apart in three ways:

    lists of one entry a layer     layer_types = [sliding, sliding, full, ...]
    lists of the layers concerned  cross_attention_layers = [3, 8, 13, ...]
    counts from an end             first_k_dense_replace = 3

Two layers are of one kind when all of these agree about them. The first and the
last layer of each kind are kept, so that kinds still alternate and what is shared
with a later layer still has its source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MIN_LAYERS = 4
MAX_LAYERS = 10

# Counts of layers from the start or (negative) from the end of the model.
_FROM_THE_START = frozenset(
    {"first_k_dense_replace", "num_dense_layers", "max_window_layers"}
)
_FROM_THE_END = frozenset({"num_kv_shared_layers"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerChoice:
    """The layers that are kept.

    Attributes:
        num_layers: Of the large model.
        kept: Indices into it, rising.
        fields: The fields that describe single layers, with their tiny values.
    """

    num_layers: int
    kept: tuple[int, ...]
    fields: Mapping[str, Any]


def choose_layers(
    fields: Mapping[str, Any],
    by_layer: Mapping[int, Mapping[str, Any]],
    num_layers: int,
    *,
    keep_all: bool = False,
) -> LayerChoice:
    """Choose two layers of each kind.

    Args:
        fields: Of the configuration.
        by_layer: Fields that single layers have otherwise than the model.
        num_layers: Of the large model.
        keep_all: Choose all layers.

    Returns:
        The choice, with the fields that depend on it.
    """
    marks = {
        name: found
        for name, value in fields.items()
        if (found := _marks(name, value, num_layers)) is not None
    }
    kinds = [
        repr(([m[i] for m in marks.values()], by_layer.get(i)))
        for i in range(num_layers)
    ]
    kept = tuple(range(num_layers)) if keep_all else _first_and_last(kinds)
    return LayerChoice(
        num_layers=num_layers,
        kept=kept,
        fields={
            name: _cut(name, fields[name], marks[name], kept, num_layers)
            for name in marks
        },
    )


def _marks(name: str, value: Any, num_layers: int) -> Sequence[Any] | None:
    """What a field says about each layer; None if it is about something else."""
    if name in _FROM_THE_START and isinstance(value, int):
        return [i < value for i in range(num_layers)]
    if name in _FROM_THE_END and isinstance(value, int):
        return [i >= num_layers - value for i in range(num_layers)]
    if not isinstance(value, list | tuple):
        return None
    if _is_index_list(name, value, num_layers):
        return [i in value for i in range(num_layers)]
    return list(value) if len(value) == num_layers and num_layers > 1 else None


def _is_index_list(name: str, value: Sequence[Any], num_layers: int) -> bool:
    named = any(word in name for word in ("layer", "idx", "indices"))
    integers = all(isinstance(x, int) and not isinstance(x, bool) for x in value)
    rising = integers and sorted(set(value)) == list(value)
    return bool(value) and named and rising and value[-1] < num_layers


def _first_and_last(kinds: Sequence[str]) -> tuple[int, ...]:
    first = {kind: i for i, kind in reversed(list(enumerate(kinds)))}
    last = {kind: i for i, kind in enumerate(kinds)}
    wanted = [*sorted(first.values()), *sorted(last.values(), reverse=True)]
    wanted = list(dict.fromkeys(wanted))[:MAX_LAYERS]
    others = (i for i in range(len(kinds)) if i not in wanted)
    while len(wanted) < min(MIN_LAYERS, len(kinds)):
        wanted.append(next(others))
    return tuple(sorted(wanted))


def _cut(
    name: str, value: Any, marks: Sequence[Any], kept: Sequence[int], num_layers: int
) -> Any:
    if isinstance(value, int):
        return sum(bool(marks[i]) for i in kept)
    if _is_index_list(name, value, num_layers):
        return [new for new, old in enumerate(kept) if marks[old]]
    return [marks[i] for i in kept]
