"""Watch a model run and write down what flows between its blocks.

Every operation of the run is seen. For each tensor a set of numbers is kept, the
segments that its value depends on:

    segment 0    all that runs before the first call of a block
    segment i    call i of a block (from 1), and what the model does after it

A tensor with an empty set, such as a mask or a position, depends on the inputs
alone: every stage can compute it. The others have to cross a cut, as an argument
of a block. What crosses in another way makes the cut illegal.

Known limitations: a value that leaves the tensors (`item()`) is not followed; on
fake tensors it reads as zero.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_aten = torch.ops.aten

# Their result has the shape of the input, not its values.
_SHAPE_ONLY = frozenset(
    {
        _aten.zeros_like,
        _aten.ones_like,
        _aten.full_like,
        _aten.empty_like,
        _aten.new_zeros,
        _aten.new_ones,
        _aten.new_full,
        _aten.new_empty,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Argument:
    """A tensor that a block is called with.

    Attributes:
        key: Position or keyword.
        tensor: The tensor.
        segments: What its value depends on; empty if on the inputs alone.
    """

    key: int | str
    tensor: torch.Tensor
    segments: frozenset[int]


@dataclass(slots=True, kw_only=True)
class Call:
    """One call of a block.

    Attributes:
        block: Index of the block.
        arguments: Its tensors, in the order of the call.
        output: What it returned.
    """

    block: int
    arguments: tuple[Argument, ...]
    output: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A parameter used outside the block that holds it.

    Attributes:
        name: Of the parameter.
        segment: When.
        block: Index of the block that was running, or None.
    """

    name: str
    segment: int
    block: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """A value that reaches later layers otherwise than as an argument of a block.

    Attributes:
        made: Last segment that it depends on.
        used: Segment that needs it.
        memory: Key of its memory, see `memory_key`.
    """

    made: int
    used: int
    memory: int


@dataclass(slots=True, kw_only=True)
class Observation:
    """All that was seen.

    Attributes:
        calls: Of blocks, in order.
        uses: Of parameters that do not belong to the block that ran.
        leaks: See `Leak`; the head is segment `len(calls) + 1`.
        finished: Paths of modules that ran before the first block only.
    """

    calls: list[Call] = field(default_factory=list)
    uses: dict[Use, None] = field(default_factory=dict)
    leaks: set[Leak] = field(default_factory=set)
    finished: list[str] = field(default_factory=list)


def observe(
    model: torch.nn.Module,
    blocks: Sequence[torch.nn.Module],
    run: Callable[[], object],
) -> Observation:
    """Run a model and watch it.

    Args:
        model: The model.
        blocks: Its blocks, in any order.
        run: Runs the model's forward once.

    Returns:
        What was seen.
    """
    watch = _Watch(model, blocks)
    with ExitStack() as stack:
        watch.hook(stack)
        stack.enter_context(watch)
        run()
    return watch.finish()


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation and every call of a block or module."""

    def __init__(self, model: torch.nn.Module, blocks: Sequence[torch.nn.Module]):
        super().__init__()  # type: ignore[no-untyped-call]
        self._model = model
        self._blocks = blocks
        self._seen = Observation()
        self._parameters = {
            memory_key(p): n for n, p in model.named_parameters(remove_duplicate=True)
        }
        self._own = [{memory_key(p) for p in block.parameters()} for block in blocks]
        self._segments: dict[int, frozenset[int]] = {}
        self._alive: list[torch.Tensor] = []
        self._running: int | None = None
        self._local: set[int] = set()
        self._stack: list[tuple[str, torch.nn.Module]] = []
        self._late: set[str] = set()
        self._outer: dict[int, int] = {}
        self._outside: list[tuple[int, int, int, int]] = []

    def hook(self, stack: ExitStack) -> None:
        """Register all hooks; the stack removes them."""
        blocks = {id(block) for block in self._blocks}
        inside = {id(m) for block in self._blocks for m in block.modules()} - blocks
        for index, block in enumerate(self._blocks):
            before = block.register_forward_pre_hook(
                self._enter_block(index), with_kwargs=True
            )
            after = block.register_forward_hook(self._leave_block(index))
            stack.callback(before.remove)
            stack.callback(after.remove)
        for name, module in self._model.named_modules():
            if id(module) not in inside | blocks:
                begin = module.register_forward_pre_hook(self._enter(name))
                end = module.register_forward_hook(self._leave(name))
                stack.callback(begin.remove)
                stack.callback(end.remove)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        try:
            output = func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            output = _guess(func, args)
        if func.overloadpacket not in _SHAPE_ONLY:
            inputs, outputs = _tensors((args, kwargs)), _tensors(output)
            if not func._schema.is_mutable:  # a view is what it shows
                shown = {memory_key(x) for x in inputs}
                outputs = [x for x in outputs if memory_key(x) not in shown]
            self._follow(inputs, outputs)
        return output

    def finish(self) -> Observation:
        """Judge what only the number of calls can tell.

        Returns:
            The observation.
        """
        seen, head = self._seen, len(self._seen.calls) + 1
        last = _keys(seen.calls[-1].output) if seen.calls else set()
        for key, made, segment, top in self._outside:
            at_head = segment == head - 1
            if at_head and (key in last or self._outer.get(key) == segment):
                continue
            used = head if at_head else top
            if made < used:
                seen.leaks.add(Leak(made=made, used=used, memory=key))
        seen.finished = [n for n in seen.finished if n not in self._late]
        return seen

    def _follow(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> None:
        now = len(self._seen.calls)
        segments: set[int] = set()
        for key in map(memory_key, inputs):
            if key in self._parameters:
                self._use(key, now)
                segments.add(now)
            else:
                segments |= self._segments.get(key, frozenset())
        if self._running is not None:
            segments.add(now)
        for key in map(memory_key, inputs):
            depends = self._segments.get(key)
            if not depends:
                continue
            made = max(depends)
            if self._running is None:
                self._outside.append((key, made, now, max(segments)))
            elif made < now and key not in self._local:
                self._seen.leaks.add(Leak(made=made, used=now, memory=key))
        for tensor in outputs:
            key = memory_key(tensor)
            if key not in self._parameters and segments:
                self._segments[key] = frozenset(segments) | self._segments.get(
                    key, frozenset()
                )
                self._local.add(key)
                if self._running is None:
                    self._outer[key] = now
                self._alive.append(tensor)

    def _use(self, key: int, now: int) -> None:
        running = self._running
        if running is not None and key in self._own[running]:
            return
        use = Use(name=self._name(key), segment=now, block=running)
        self._seen.uses[use] = None

    def _name(self, key: int) -> str:
        """The name under which the innermost running module holds a parameter."""
        for path, module in reversed(self._stack):
            for leaf, parameter in module.named_parameters(recurse=False):
                if memory_key(parameter) == key:
                    return f"{path}.{leaf}" if path else leaf
        return self._parameters[key]

    def _enter_block(self, index: int) -> Any:
        def hook(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
            if self._running is not None:
                return
            given = {**dict(enumerate(args)), **kwargs}
            arguments = tuple(
                Argument(
                    key=name,
                    tensor=value,
                    segments=self._segments.get(memory_key(value), frozenset()),
                )
                for name, value in given.items()
                if isinstance(value, torch.Tensor)
            )
            self._alive += [x.tensor for x in arguments]
            self._local = {memory_key(x.tensor) for x in arguments}
            self._seen.calls.append(Call(block=index, arguments=arguments))
            self._running = index

        return hook

    def _leave_block(self, index: int) -> Any:
        def hook(module: torch.nn.Module, args: Any, output: Any) -> None:
            if self._running == index:
                self._seen.calls[-1].output = output
                self._running = None

        return hook

    def _enter(self, name: str) -> Any:
        def hook(module: torch.nn.Module, args: Any) -> None:
            self._stack.append((name, module))

        return hook

    def _leave(self, name: str) -> Any:
        def hook(module: torch.nn.Module, args: Any, output: Any) -> None:
            self._stack.pop()
            if self._seen.calls:
                self._late.add(name)
            elif name not in self._seen.finished:
                self._seen.finished.append(name)

        return hook


def _guess(func: Any, args: Any) -> Any:
    """What an operation on values gives where there are no values."""
    if func is _aten._local_scalar_dense.default:
        return _zero_of(args[0].dtype)
    if func is _aten.equal.default:
        return False
    if func is _aten.nonzero.default:
        return args[0].new_zeros((1, args[0].dim()), dtype=torch.long)
    raise


def _zero_of(dtype: torch.dtype) -> bool | int | float:
    if dtype == torch.bool:
        return False
    return 0.0 if dtype.is_floating_point else 0


def memory_key(tensor: torch.Tensor) -> int:
    """A number that tensors share if they share memory.

    Args:
        tensor: Any, also a fake one.

    Returns:
        The number; it is unique while the tensor is alive.
    """
    return int(tensor.untyped_storage()._cdata)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, torch.Tensor)]


def _keys(values: Any) -> set[int]:
    return {memory_key(x) for x in _tensors(values)}
