"""Recompute: a layer that keeps its inputs only, and runs again before B or I.

torch's own (`torch.utils.checkpoint`) brings back what was dropped for one walk
through the graph. B is one walk, but W is one for each group of parameters: it would
run a Llama block nine more times and hold nine copies until it ends. Here a layer
runs again once. What comes back stays where it would be if it had never been
dropped: in B until its operator is done, after I until the end of W.

Known limitations: autocast is not restored; a backward of a backward gets no
gradients through what was brought back.
"""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


def recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A layer's forward that keeps its inputs only and runs again before B.

    Args:
        forward: The layer's own.

    Returns:
        The same function with recompute.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        call = _Call(forward, args, kwargs)
        with torch.autograd.graph.saved_tensors_hooks(call.drop, call.bring_back):
            return forward(*args, **kwargs)

    return run


class _EnoughError(BaseException):
    """Leaves a layer that has brought everything back.

    Not an `Exception`, so that no handler inside a model swallows it.
    """


class _Place:
    """Stands in the graph for a tensor that was dropped, and holds it afterwards."""

    __slots__ = ("__weakref__", "looks", "tensor")

    def __init__(self, tensor: torch.Tensor):
        self.looks = (tensor.shape, tensor.dtype)
        self.tensor: torch.Tensor | None = None


class _Call:
    """One call of a layer, which can be made again."""

    def __init__(
        self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ):
        leaves = tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self._forward: Callable[[], Any] | None = functools.partial(
            forward, *args, **kwargs
        )
        self._inputs = [(tensor, tensor._version) for tensor in tensors]
        self._random = _RandomState(tensors)
        # The graph alone holds the places: with a node goes what it has saved.
        self._places: list[weakref.ref[_Place]] = []

    def drop(self, tensor: torch.Tensor) -> _Place:
        """Forget a tensor that autograd would save."""
        place = _Place(tensor)
        self._places.append(weakref.ref(place))
        return place

    def bring_back(self, place: _Place) -> torch.Tensor:
        """Give it back, after running the layer again the first time."""
        if self._forward is not None:
            self._run_again(self._forward)
        if place.tensor is None:
            msg = "a recomputed layer saved less for its backward when it ran again"
            raise RuntimeError(msg)
        return place.tensor

    def _run_again(self, forward: Callable[[], Any]) -> None:
        if any(tensor._version != version for tensor, version in self._inputs):
            msg = "the input of a recomputed layer was changed in place after its F"
            raise RuntimeError(msg)
        waiting = self._places[::-1]

        def keep(tensor: torch.Tensor) -> None:
            place = waiting.pop()()
            if place is not None:
                _fill(place, tensor)
            if not waiting:
                raise _EnoughError

        hooks = torch.autograd.graph.saved_tensors_hooks(keep, _never)
        try:
            with self._random.restored(), torch.enable_grad(), hooks:
                forward()
        except _EnoughError:
            pass
        self._forward, self._inputs, self._places = None, [], []


def _fill(place: _Place, tensor: torch.Tensor) -> None:
    looks = (tensor.shape, tensor.dtype)
    if looks != place.looks:
        msg = (
            "a recomputed layer saved a tensor of another shape or type when it ran "
            f"again: {looks} instead of {place.looks}"
        )
        raise RuntimeError(msg)
    place.tensor = tensor.detach()


def _never(_: None) -> torch.Tensor:
    msg = "a recomputed layer runs a backward of its own"
    raise RuntimeError(msg)


class _RandomState:
    """Where the random numbers are that a layer is about to draw."""

    def __init__(self, tensors: Sequence[torch.Tensor]):
        cards = {x.device for x in tensors if x.device.type == "cuda"}
        self._on_cards = {card: torch.cuda.get_rng_state(card) for card in cards}
        self._on_cpu = torch.get_rng_state()

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Draw the same ones again; afterwards all goes on as if nobody had."""
        with torch.random.fork_rng(devices=list(self._on_cards)):
            torch.set_rng_state(self._on_cpu)
            for card, state in self._on_cards.items():
                torch.cuda.set_rng_state(state, card)
            yield
