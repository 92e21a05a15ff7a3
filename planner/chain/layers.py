"""How a model becomes a chain of layers, found by watching it run.

The model runs once on fake tensors, without memory or arithmetic, while hooks
write down what happens. The blocks are the outermost `ModuleList` that holds
most of the parameters; whatever ran before the first block is the embedding,
whatever ran after the last one is the head. So nothing here knows the names
that a particular architecture uses.

Known limitations: one tensor passes from block to block. A model whose blocks
exchange more is refused.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from planner.chain.source import ModelSource, build_model
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
class Handover:
    """How the hidden state goes from block to block.

    Attributes:
        input_key: Position or keyword of a block's argument that holds it.
        output_index: Index in a block's output tuple, or None for a bare tensor.
        output_length: Length of that tuple, 0 for a bare tensor.
        shape: For a batch of one and `seq_len` of the observation.
        dtype: Of the hidden state of a bfloat16 model (some keep it in fp32).
    """

    input_key: int | str
    output_index: int | None
    output_length: int
    shape: tuple[int, ...]
    dtype: torch.dtype


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
        num_parameters: In all, tied ones counted once.
    """

    architecture: str
    attention: str
    layers: tuple[Layer, ...]
    ties: tuple[tuple[str, str], ...]
    tied: tuple[tuple[str, ...], ...]
    handover: Handover
    num_parameters: int

    @property
    def blocks(self) -> tuple[Layer, ...]:
        """The layers between embedding and head."""
        return self.layers[1:-1]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the layers, first to last."""
        return tuple(layer.name for layer in self.layers)

    @property
    def canonical(self) -> dict[str, str]:
        """Name under which a parameter is saved, for every tied name."""
        return {name: names[0] for names in self.tied for name in names}


def find_chain(source: ModelSource, *, attention: str) -> Chain:
    """Watch a model run on fake tensors and write down its chain of layers.

    Args:
        source: The model.
        attention: Attention implementation of transformers.

    Returns:
        The chain; no memory is allocated.

    Raises:
        ModelError: The model is not a chain that this program can cut; the
            message says where it differs.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):
        # Fake grouped matrix products, which experts use, exist in bfloat16 only.
        model = build_model(source, dtype=torch.bfloat16, attention=attention)
        prefix, blocks = _find_blocks(model, source.id)
        watch = _Watch(model, blocks)
        watch.run(torch.zeros((1, 8), dtype=torch.long), source.id)
    handover = watch.handover(source.id)
    layers: tuple[Layer, ...] = (
        _outer_layer(model, EMBEDDING, watch.before),
        *(_block_layer(f"{prefix}.{i}", block) for i, block in enumerate(blocks)),
        _outer_layer(model, HEAD, watch.after),
    )
    _check_every_parameter_has_a_layer(model, layers, source.id)
    tied = _tied_names(model, layers)
    layers = tuple(_count_tied(model, layer, tied) for layer in layers)
    return Chain(
        architecture=type(model).__name__,
        attention=str(getattr(model.config, "_attn_implementation", attention)),
        layers=layers,
        ties=_tied_layers(layers, tied),
        tied=tied,
        handover=handover,
        num_parameters=sum(p.numel() for p in model.parameters()),
    )


def _find_blocks(
    model: torch.nn.Module, model_id: str
) -> tuple[str, list[torch.nn.Module]]:
    """The outermost ModuleList with most parameters, and its path."""
    candidates: dict[str, torch.nn.ModuleList] = {}
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in candidates)
        if isinstance(module, torch.nn.ModuleList) and len(module) and not inside:
            candidates[name] = module
    if not candidates:
        msg = f"{model_id} has no list of blocks to cut between"
        raise ModelError(msg)

    def size(name: str) -> int:
        return sum(p.numel() for p in candidates[name].parameters())

    prefix = max(candidates, key=size)
    return prefix, list(candidates[prefix])


class _Watch:
    """Hooks that write down in which order a model's modules run."""

    def __init__(self, model: torch.nn.Module, blocks: list[torch.nn.Module]):
        self.before: list[str] = []
        self.after: list[str] = []
        self._model = model
        self._blocks = blocks
        self._calls: list[tuple[int, Any, Any, Any]] = []

    def run(self, input_ids: torch.Tensor, model_id: str) -> None:
        in_block = {id(m) for block in self._blocks for m in block.modules()}
        with ExitStack() as hooks:
            for name, module in self._model.named_modules():
                holds = any(True for _ in module.parameters(recurse=False))
                if holds and id(module) not in in_block:
                    hook = module.register_forward_pre_hook(self._note(name))
                    hooks.callback(hook.remove)
            for index, block in enumerate(self._blocks):
                hook = block.register_forward_hook(
                    self._note_block(index), with_kwargs=True
                )
                hooks.callback(hook.remove)
            try:
                self._model(input_ids=input_ids, use_cache=False)
            except Exception as error:
                reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
                msg = f"{model_id} does not run on token ids alone ({reason[:200]})"
                raise ModelError(msg) from error

    def _note(self, name: str) -> Any:
        def hook(module: torch.nn.Module, args: Any) -> None:
            side = self.after if self._calls else self.before
            if name not in side:
                side.append(name)

        return hook

    def _note_block(self, index: int) -> Any:
        def hook(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            self._calls.append((index, args, kwargs, output))

        return hook

    def handover(self, model_id: str) -> Handover:
        order = [call[0] for call in self._calls]
        if order != list(range(len(self._blocks))):
            msg = (
                f"{model_id} does not call its {len(self._blocks)} blocks one after "
                f"the other; it calls them in the order {order[:8]}"
            )
            raise ModelError(msg)
        keys = {self._hidden(i, model_id) for i in range(len(self._calls))}
        if len(keys) != 1:
            msg = (
                f"the blocks of {model_id} pass their hidden state in {len(keys)} ways"
            )
            raise ModelError(msg)
        key, index, length = keys.pop()
        _, args, kwargs, _ = self._calls[0]
        hidden = args[key] if isinstance(key, int) else kwargs[key]
        return Handover(
            input_key=key,
            output_index=index,
            output_length=length,
            shape=tuple(hidden.shape),
            dtype=hidden.dtype,
        )

    def _hidden(self, call: int, model_id: str) -> tuple[int | str, int | None, int]:
        """Where block `call` takes the hidden state and where it leaves it."""
        _, args, kwargs, output = self._calls[call]
        given: dict[int | str, Any] = {**dict(enumerate(args)), **kwargs}
        key: int | str = 0 if args else "hidden_states"
        hidden = given.get(key)
        index = None if isinstance(output, torch.Tensor) else 0
        left = _left(output)
        if not _same_shape(hidden, left):
            msg = f"block {call} of {model_id} does not pass one hidden state along"
            raise ModelError(msg)
        if call and hidden is not _left(self._calls[call - 1][3]):
            msg = f"block {call} of {model_id} is not handed what block {call - 1} left"
            raise ModelError(msg)
        others = [x for x in tree_leaves((args, kwargs)) if x is not hidden]
        if any(isinstance(x, torch.Tensor) and x.requires_grad for x in others):
            msg = (
                f"block {call} of {model_id} is handed a second tensor that needs a "
                "gradient; only the hidden state can pass from stage to stage"
            )
            raise ModelError(msg)
        return key, index, 0 if index is None else len(output)


def _left(output: Any) -> Any:
    """What a block's output holds where the hidden state ought to be."""
    return output[0] if isinstance(output, tuple) and output else output


def _same_shape(hidden: Any, left: Any) -> bool:
    both = isinstance(hidden, torch.Tensor) and isinstance(left, torch.Tensor)
    return both and hidden.shape == left.shape


def _outer_layer(model: torch.nn.Module, name: str, modules: list[str]) -> Layer:
    """The layer of everything that runs before or after the blocks."""
    tensors = {
        f"{path}.{key}" if path else key: parameter
        for path in modules
        for key, parameter in model.get_submodule(path).named_parameters(recurse=False)
    }
    return Layer(
        name=name,
        kind=name,
        modules=tuple(modules),
        parameters=tuple(tensors),
        num_parameters=_num_elements(tensors.values()),
        num_tied_parameters=0,
        fingerprint=name,
    )


def _block_layer(path: str, block: torch.nn.Module) -> Layer:
    names = [name for name, _ in block.named_parameters(remove_duplicate=False)]
    return Layer(
        name=path,
        kind=type(block).__name__,
        modules=(path,),
        parameters=tuple(f"{path}.{name}" for name in names),
        num_parameters=_num_elements(block.parameters()),
        num_tied_parameters=0,
        fingerprint="\n".join(_fingerprint(block)),
    )


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


def _check_every_parameter_has_a_layer(
    model: torch.nn.Module, layers: tuple[Layer, ...], model_id: str
) -> None:
    known = {name for layer in layers for name in layer.parameters}
    for name, _ in model.named_parameters(remove_duplicate=False):
        if name not in known:
            msg = (
                f"the parameter {name} of {model_id} belongs to no layer: no module "
                "that holds it ran before, in or after the blocks"
            )
            raise ModelError(msg)


def _tied_names(
    model: torch.nn.Module, layers: tuple[Layer, ...]
) -> tuple[tuple[str, ...], ...]:
    """Names of parameters that are one tensor, in the order of the layers."""
    tensors = dict(model.named_parameters(remove_duplicate=False))
    names: dict[int, list[str]] = {}
    for name in (name for layer in layers for name in layer.parameters):
        same = names.setdefault(id(tensors[name]), [])
        if name not in same:
            same.append(name)
    return tuple(tuple(group) for group in names.values() if len(group) > 1)


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
