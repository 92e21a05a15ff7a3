"""How a model becomes a chain of layers, found by watching it run.

The model runs once on fake tensors, without memory or arithmetic, while every
operation is watched. The blocks are a `ModuleList`; whatever runs before the first
block is the embedding, whatever runs after the last one is the head, and what runs
between two blocks belongs to the first of them. So nothing here knows the names
that a particular architecture uses.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from planner.chain.crossing import Crossing, Handover, widened
from planner.chain.flow import Flow, Uncuttable, find_flow
from planner.chain.own_module import computes_loss
from planner.chain.source import ModelSource
from planner.chain.watched import WATCHED_SHAPE, Watched, watch_model
from planner.errors import ModelError

EMBEDDING = "embedding"
HEAD = "head"

# Attributes that number a layer and do not make it different from its like.
_POSITION_ATTRIBUTES = frozenset(
    {"layer_idx", "layer_id", "layer_number", "layer_index", "idx", "block_idx"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The smallest thing never cut.

    Attributes:
        name: `embedding`, the path of a block such as `model.layers.3`, or `head`.
        kind: `embedding`, the class of the block, or `head`.
        modules: Paths of the modules that hold its parameters.
        parameters: Names of all parameters it uses, as in `named_parameters`
            with duplicates; a tied one appears in several layers.
        num_parameters: Elements of these, each tensor once.
        num_tied_parameters: Of those, shared with another layer.
        fingerprint: Equal for layers that cost the same.
    """

    name: str
    kind: str
    modules: tuple[str, ...]
    parameters: tuple[str, ...]
    num_parameters: int
    num_tied_parameters: int
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A model as a chain of layers.

    Attributes:
        architecture: Class of the model.
        attention: Attention implementation that the model uses.
        layers: First to last: embedding, blocks, head.
        ties: Pairs of layer names that share parameters.
        tied: Per tied parameter, its names; the first is the canonical one.
        handover: How the hidden state goes from block to block.
        dtype: Of the parameters of the model that was watched.
        num_parameters: In all, tied ones counted once.
        calls: Index of the layer of every call of a block, in order; some models
            call a block several times, or not at all.
        uncuttable: Layers after which there is no cut, and why.
        finished: Paths of modules that have run before the first block and do not
            run again.
        adds_loss: Whether the model adds something to the cross-entropy, such as a
            balance loss.
        computes_loss: Whether a user's module brings its own loss, the mean of its
            rows.
        num_before: Layers before the blocks, an embedding or none.
        num_after: Layers behind the blocks, a head or none.
    """

    architecture: str
    attention: str
    layers: tuple[Layer, ...]
    ties: tuple[tuple[str, str], ...]
    tied: tuple[tuple[str, ...], ...]
    handover: Handover
    dtype: torch.dtype
    num_parameters: int
    calls: tuple[int, ...]
    uncuttable: tuple[Uncuttable, ...]
    finished: tuple[str, ...]
    adds_loss: bool = False
    computes_loss: bool = False
    num_before: int = 1
    num_after: int = 1

    @property
    def blocks(self) -> tuple[Layer, ...]:
        """The layers between embedding and head."""
        return self.layers[self.num_before : len(self.layers) - self.num_after]

    @property
    def inner(self) -> tuple[Layer, ...]:
        """The layers that are handed a hidden state and hand one on."""
        return self.layers[1:-1]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the layers, first to last."""
        return tuple(layer.name for layer in self.layers)

    @property
    def cuts(self) -> tuple[int, ...]:
        """Indices of the layers after which a cut is legal."""
        forbidden = {x.layer for x in self.uncuttable}
        return tuple(i for i in range(len(self.layers) - 1) if i not in forbidden)

    @property
    def has_one_shape(self) -> bool:
        """Whether the hidden state is everywhere alike."""
        return len(set(self.handover.hidden)) == 1

    def check_cut(self, first: int) -> None:
        """Refuse a stage that begins where there is no cut.

        Args:
            first: Index of the stage's first layer.

        Raises:
            ModelError: The model cannot be cut before it.
        """
        for place in self.uncuttable:
            if place.layer == first - 1:
                before, after = self.names[first - 1 : first + 1]
                msg = f"there is no cut between {before} and {after}: {place.why}"
                raise ModelError(msg)

    def entry_before(self, layer: int) -> int:
        """Where a stage that holds a layer can begin at the latest.

        Args:
            layer: Index of the layer.

        Returns:
            Index of the layer itself, or of one before it if there is no cut
            between them.
        """
        return max((cut + 1 for cut in self.cuts if cut < layer), default=0)

    def crossing(self, layer: int, *, dtype: torch.dtype) -> tuple[Crossing, ...]:
        """What crosses the cut after a layer.

        Args:
            layer: Index of the layer; -1 and the last one have no cut.
            dtype: Of the model's parameters.

        Returns:
            The hidden state and all else, for a microbatch of the shape that the
            model was watched with; empty if nothing crosses.
        """
        if not 0 <= layer < len(self.layers) - 1:
            return ()
        before = self.calls_before(layer + 1)
        handover = self.handover
        extras = [x.tensor for x in handover.extras if x.crosses(before)]
        collected = [x.tensor for x in handover.collected if x.crosses(before)]
        return tuple(
            replace(x, dtype=self._as(x.dtype, dtype))
            for x in (handover.hidden[before], *extras, *collected)
        )

    def _as(self, watched: torch.dtype, dtype: torch.dtype) -> torch.dtype:
        """What a dtype becomes in a model of another one; fp32 parts stay fp32."""
        if not watched.is_floating_point or dtype == torch.float32:
            return dtype if watched.is_floating_point else watched
        return dtype if watched == self.dtype else watched

    def calls_before(self, layer: int) -> int:
        """How many calls of blocks come before a layer.

        Args:
            layer: Its index.

        Returns:
            The number of the first call of this layer or a later one.
        """
        return sum(called < layer for called in self.calls)

    @property
    def calls_between_parts(self) -> frozenset[int]:
        """Calls of blocks before which only the hidden state takes a gradient.

        There a stage's graph can end, see `split_backward`; the number of calls
        stands for the head.
        """
        if self.handover.in_place:
            return frozenset()
        return frozenset(
            self.calls_before(cut + 1)
            for cut in self.cuts
            if not any(
                x.requires_grad for x in self.crossing(cut, dtype=self.dtype)[1:]
            )
        )

    @property
    def canonical(self) -> dict[str, str]:
        """Name under which a parameter is saved, for every tied name."""
        return {name: names[0] for names in self.tied for name in names}


def find_chain(
    source: ModelSource,
    *,
    attention: str,
    shape: tuple[int, int] = WATCHED_SHAPE,
) -> Chain:
    """Watch a model run and write down its chain of layers.

    Args:
        source: The model.
        attention: Attention implementation of transformers.
        shape: Of a microbatch, (batch, seq_len): `crossing` is then right for it.

    Returns:
        The chain; no memory is allocated.

    Raises:
        ModelError: The model is not a chain that this program can cut; the
            message says where it differs.
    """
    watched = watch_model(source, attention=attention, shape=shape)
    model, seen = watched.model, watched.seen
    flow = find_flow(seen, watched.paths, source.id)
    homes = _homes(watched, flow)
    paths = [watched.paths[block] for block in flow.order]
    layers: tuple[Layer, ...] = (
        _outer_layer(model, EMBEDDING, homes.get(0, ())),
        *(
            _block_layer(model, path, homes.get(number, ()))
            for number, path in enumerate(paths, start=1)
        ),
        _outer_layer(model, HEAD, homes.get(len(paths) + 1, ())),
    )
    tied = _tied_names(model, layers)
    layers = tuple(_count_tied(model, layer, tied) for layer in layers)
    config = getattr(model, "config", None)
    chain = Chain(
        architecture=type(model).__name__,
        attention=str(getattr(config, "_attn_implementation", attention)),
        layers=layers,
        ties=_tied_layers(layers, tied),
        tied=tied,
        handover=widened(flow.handover, watched.sizes),
        dtype=watched.dtype,
        num_parameters=sum(p.numel() for p in model.parameters()),
        calls=flow.calls,
        uncuttable=flow.uncuttable,
        finished=tuple(seen.finished),
        adds_loss=seen.adds_loss,
        computes_loss=source.factory is not None and computes_loss(model),
    )
    if source.factory is None:
        return chain
    _check_is_chain(chain, flow, source.id)
    return _without_empty_ends(chain, source.id)


def _check_is_chain(chain: Chain, flow: Flow, model_id: str) -> None:
    """Refuse a user's module that branches, and say where."""
    called = [chain.layers[layer].name for layer in chain.calls]
    for number in flow.branches:
        msg = (
            f"{model_id} is no chain: it branches at {called[number]}, which is not "
            f"handed what {called[number - 1]} left"
        )
        raise ModelError(msg)
    for found in chain.handover.collected:
        msg = (
            f"{model_id} is no chain: it branches behind {called[found.call]}; what "
            f"{found.source[0]} returned goes past the layers that follow"
        )
        raise ModelError(msg)


def _without_empty_ends(chain: Chain, model_id: str) -> Chain:
    """Only children of the module are layers if nothing else has parameters."""
    before = int(bool(chain.layers[0].parameters))
    after = int(bool(chain.layers[-1].parameters))
    last = len(chain.layers) - 1
    shift = 1 - before
    layers = [_with_shape(chain, index) for index in range(len(chain.layers))]
    layers = layers[shift : last + after]
    # At the ends a layer has no gradient to hand back, or computes the loss.
    for index, place in ((0, "first"), (-1, "last")):
        alike = f"{place}\n{layers[index].fingerprint}"
        layers[index] = replace(layers[index], fingerprint=alike)
    found = replace(
        chain,
        layers=tuple(layers),
        calls=tuple(called - shift for called in chain.calls),
        uncuttable=tuple(
            Uncuttable(layer=x.layer - shift, why=x.why)
            for x in chain.uncuttable
            if shift <= x.layer < last + after - 1
        ),
        num_before=before,
        num_after=after,
    )
    if not found.cuts and len(found.layers) > 1:
        before_name, after_name = found.names[found.uncuttable[0].layer :][:2]
        msg = (
            f"{model_id} is no chain: between {before_name} and {after_name}, "
            f"{found.uncuttable[0].why}"
        )
        raise ModelError(msg)
    return found


def _with_shape(chain: Chain, index: int) -> Layer:
    """A layer that costs the same only for inputs of the same shape."""
    layer = chain.layers[index]
    shapes = [
        chain.handover.hidden[number].shape
        for number, called in enumerate(chain.calls)
        if called == index
    ]
    return replace(layer, fingerprint=f"{layer.fingerprint}\n{shapes}")


def _homes(watched: Watched, flow: Flow) -> dict[int, tuple[str, ...]]:
    """Which layers use the parameters that belong to no block, by layer index.

    A name that no module used stays with another name of the same tensor. A
    parameter that nothing used stays with the embedding: it has no gradient.
    """
    layers_of: dict[int, set[int]] = {}
    homes: dict[int, dict[str, None]] = {}
    named: set[str] = set()
    tensors = dict(watched.model.named_parameters(remove_duplicate=False))
    for number, block in enumerate(flow.order, start=1):
        for parameter in watched.blocks[block].parameters():
            layers_of.setdefault(id(parameter), set()).add(number)
    for use in watched.seen.uses:
        layer = flow.layer_of(use)
        homes.setdefault(layer, {})[use.name] = None
        layers_of.setdefault(id(tensors[use.name]), set()).add(layer)
        named.add(use.name)
    inside = tuple(f"{watched.paths[block]}." for block in flow.order)
    for name, parameter in tensors.items():
        if name not in named and not name.startswith(inside):
            layer = min(layers_of.get(id(parameter), {0}))
            homes.setdefault(layer, {})[name] = None
    return {layer: tuple(names) for layer, names in homes.items()}


def _outer_layer(
    model: torch.nn.Module, name: str, parameters: tuple[str, ...]
) -> Layer:
    """The layer of everything that runs before or after the blocks."""
    return Layer(
        name=name,
        kind=name,
        modules=_holders(parameters),
        parameters=parameters,
        num_parameters=_num_elements(map(model.get_parameter, parameters)),
        num_tied_parameters=0,
        fingerprint=name,
    )


def _block_layer(model: torch.nn.Module, path: str, others: tuple[str, ...]) -> Layer:
    """The layer of a block, and of what runs between it and the next one."""
    block = model.get_submodule(path)
    names = [name for name, _ in block.named_parameters(remove_duplicate=False)]
    parameters = (*(f"{path}.{name}" for name in names), *others)
    return Layer(
        name=path,
        kind=type(block).__name__,
        modules=(path, *_holders(others)),
        parameters=parameters,
        num_parameters=_num_elements(map(model.get_parameter, parameters)),
        num_tied_parameters=0,
        fingerprint="\n".join([*_fingerprint(block), *_shapes(model, others)]),
    )


def _holders(parameters: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.rpartition(".")[0] for name in parameters))


def _shapes(model: torch.nn.Module, parameters: Iterable[str]) -> Iterator[str]:
    for name in parameters:
        yield f"between {name.split('.')[-1]} {model.get_parameter(name).shape}"


def _num_elements(parameters: Any) -> int:
    return sum(p.numel() for p in {id(p): p for p in parameters}.values())


def _fingerprint(block: torch.nn.Module) -> Iterator[str]:
    """What a block is: classes, shapes, and every plain setting but its number."""
    for path, module in block.named_modules():
        settings = {
            key: value
            for key, value in sorted(vars(module).items())
            if isinstance(value, str | int | float | bool)
            and not key.startswith("_")
            and key not in _POSITION_ATTRIBUTES
        }
        shapes = [tuple(p.shape) for p in module.parameters(recurse=False)]
        yield f"{path} {type(module).__qualname__} {settings} {shapes}"


def _tied_names(
    model: torch.nn.Module, layers: tuple[Layer, ...]
) -> tuple[tuple[str, ...], ...]:
    """Names of parameters that are one tensor, in the order of the layers.

    One name alone is tied too if several layers use it.
    """
    tensors = dict(model.named_parameters(remove_duplicate=False))
    names: dict[int, list[str]] = {}
    for name in (name for layer in layers for name in layer.parameters):
        names.setdefault(id(tensors[name]), []).append(name)
    return tuple(
        tuple(dict.fromkeys(group)) for group in names.values() if len(group) > 1
    )


def _count_tied(
    model: torch.nn.Module, layer: Layer, tied: tuple[tuple[str, ...], ...]
) -> Layer:
    shared = {n for names in tied for n in names} & set(layer.parameters)
    count = _num_elements(model.get_parameter(name) for name in shared)
    return replace(layer, num_tied_parameters=count)


def _tied_layers(
    layers: tuple[Layer, ...], tied: tuple[tuple[str, ...], ...]
) -> tuple[tuple[str, str], ...]:
    pairs = []
    for group in tied:
        holders = [x.name for x in layers if set(group) & set(x.parameters)]
        pairs += [(holders[0], other) for other in holders[1:]]
    return tuple(dict.fromkeys(pairs))
