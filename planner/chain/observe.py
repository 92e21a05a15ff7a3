"""Watch a model run and write down what flows between its blocks.

Every operation of the run is seen. For each tensor a set of numbers is kept, the
segments that its value depends on:

    segment 0    all that runs before the first call of a block
    segment i    call i of a block (from 1), and what the model does after it

A tensor with an empty set, such as a mask or a position, depends on the inputs
alone: every stage can compute it. The others have to cross a cut, as an argument
of a block or as something that the model collects from its blocks.

On a stage, all code outside the blocks runs, too. What it computes is right if
all its sources are there: values that blocks made or were handed, and parameters.

Known limitations: a value that leaves the tensors (`item()`) is not followed; on
fake tensors it reads as zero.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from planner.chain.even_counts import BINCOUNT, even_counts
from planner.chain.nested import tensors_in, without_tensors
from planner.chain.observation import (
    Argument,
    Call,
    ModuleCall,
    Need,
    Observation,
    Source,
    Use,
    memory_key,
)

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


def observe(
    model: torch.nn.Module,
    blocks: Sequence[tuple[str, torch.nn.Module]],
    run: Callable[[], tuple[torch.Tensor, torch.Tensor | None]],
) -> Observation:
    """Run a model and watch it.

    Args:
        model: The model.
        blocks: Its blocks with their paths, in any order.
        run: Runs the model's forward once; returns logits and what the model adds
            to the cross-entropy.

    Returns:
        What was seen.
    """
    watch = _Watch(model, blocks)
    with ExitStack() as stack:
        watch.hook(stack)
        stack.enter_context(watch)
        logits, added = run()
    return watch.finish(logits, added)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation and every call of a block or module."""

    def __init__(
        self, model: torch.nn.Module, blocks: Sequence[tuple[str, torch.nn.Module]]
    ):
        super().__init__()  # type: ignore[no-untyped-call]
        self._model = model
        self._blocks = blocks
        self._seen = Observation()
        self._parameters = {
            memory_key(p): n for n, p in model.named_parameters(remove_duplicate=True)
        }
        self._own = [{memory_key(p) for p in block.parameters()} for _, block in blocks]
        self._segments: dict[int, frozenset[int]] = {}
        self._sources: dict[int, frozenset[Source]] = {}
        self._alive: list[torch.Tensor] = []
        self._running: int | None = None
        self._local: set[int] = set()
        self._stack: list[tuple[str, torch.nn.Module]] = []
        self._late: set[str] = set()

    def hook(self, stack: ExitStack) -> None:
        """Register all hooks; the stack removes them."""
        inside: set[int] = set()
        for index, (root, block) in enumerate(self._blocks):
            for name, module in block.named_modules(remove_duplicate=False):
                inside.add(id(module))
                path = f"{root}.{name}" if name else root
                end = module.register_forward_hook(self._leave_inner(index, path))
                stack.callback(end.remove)
            before = block.register_forward_pre_hook(
                self._enter_block(index), with_kwargs=True
            )
            after = block.register_forward_hook(self._leave_block(index))
            stack.callback(before.remove)
            stack.callback(after.remove)
        for name, module in self._model.named_modules():
            if id(module) not in inside:
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
            output = _guess(func, args, kwargs)
        if func.overloadpacket not in _SHAPE_ONLY:
            inputs, outputs = _keys((args, kwargs)), _tensors(output)
            if not func._schema.is_mutable:  # a view is what it shows
                outputs = [x for x in outputs if memory_key(x) not in inputs]
            if self._running is None:
                self._follow_outside(inputs, outputs)
            else:
                self._follow_inside(inputs, outputs)
        return output

    def finish(self, logits: torch.Tensor, added: torch.Tensor | None) -> Observation:
        """Judge what only the number of calls can tell.

        Args:
            logits: What the model returned.
            added: What it adds to the cross-entropy.

        Returns:
            The observation.
        """
        seen, end = self._seen, len(self._seen.calls)
        final = {memory_key(x) for x in (logits, added) if x is not None}
        sources = [x for key in final for x in self._sources.get(key, ())]
        of_head = [x for x in sources if x.kind == "parameter" and x.call == end - 1]
        self._need((x for x in sources if x not in of_head), end)
        seen.adds_loss = added is not None and memory_key(added) in self._segments
        seen.finished = [n for n in seen.finished if n not in self._late]
        return seen

    def _follow_inside(self, inputs: set[int], outputs: list[torch.Tensor]) -> None:
        """Inside a block: all that is made belongs to its call."""
        now = len(self._seen.calls)
        for key in inputs:
            if key in self._parameters:
                self._use(key, now)
            elif key not in self._local and max(self._segments.get(key, {now})) < now:
                # However it got here: nobody hands it in on another stage.
                known = max(self._segments[key]) - 1
                value = Source(kind="made", call=known, memory=key)
                self._need({*self._sources[key], value}, now - 1, inside=True)
        depends = self._depends(inputs, now) | {now}
        for tensor in outputs:
            key = memory_key(tensor)
            self._know(tensor, depends, {Source(kind="made", call=now - 1, memory=key)})
            self._local.add(key)

    def _follow_outside(self, inputs: set[int], outputs: list[torch.Tensor]) -> None:
        """Outside the blocks: what is made depends on the sources of its inputs."""
        now = len(self._seen.calls)
        sources: set[Source] = set()
        for key in inputs:
            if key in self._parameters:
                self._use(key, now)
                sources.add(Source(kind="parameter", call=now - 1, memory=key))
            sources |= self._sources.get(key, frozenset())
        depends = self._depends(inputs, now)
        if not depends:
            return
        for tensor in outputs:
            before = self._sources.get(memory_key(tensor), frozenset())
            self._know(tensor, depends, sources | before)

    def _depends(self, inputs: set[int], now: int) -> set[int]:
        found = {now} if inputs & self._parameters.keys() else set()
        return found.union(*(self._segments.get(key, ()) for key in inputs))

    def _know(
        self, tensor: torch.Tensor, segments: set[int], sources: Iterable[Source]
    ) -> None:
        key = memory_key(tensor)
        if key not in self._parameters:
            before = self._segments.get(key, frozenset())
            self._segments[key] = frozenset(segments) | before
            self._sources[key] = frozenset(sources)
            self._alive.append(tensor)

    def _need(
        self, sources: Iterable[Source], last_call: int, *, inside: bool = False
    ) -> None:
        for source in sources:
            if source.call < last_call:
                need = Need(source=source, last_call=last_call, inside=inside)
                self._seen.needs.add(need)
            self._seen.rereads |= source.kind == "handed"

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
                self._seen.nested |= self._running != index
                return
            given = {**dict(enumerate(args)), **kwargs}
            arguments = tuple(
                Argument(
                    path=path,
                    tensor=value,
                    segments=self._segments.get(memory_key(value), frozenset()),
                )
                for path, value in tensors_in(given)
            )
            for argument in arguments:
                self._hand_over(argument)
            self._alive += [x.tensor for x in arguments]
            self._local = {memory_key(x.tensor) for x in arguments}
            self._seen.calls.append(Call(block=index, arguments=arguments))
            self._running = index

        return hook

    def _hand_over(self, argument: Argument) -> None:
        """A stage that enters at this call gets the argument; others need more."""
        key = memory_key(argument.tensor)
        if not argument.segments or key in self._parameters:
            return
        self._need(
            (x for x in self._sources[key] if x.memory != key or x.kind != "handed"),
            max(argument.segments) - 1,
        )
        handed = Source(kind="handed", call=len(self._seen.calls), memory=key)
        self._sources[key] = frozenset({handed})

    def _leave_block(self, index: int) -> Any:
        def hook(module: torch.nn.Module, args: Any, output: Any) -> None:
            if self._running == index:
                self._seen.calls[-1].output = output
                self._running = None

        return hook

    def _leave_inner(self, index: int, path: str) -> Any:
        def hook(module: torch.nn.Module, args: Any, output: Any) -> None:
            if self._running == index:
                done = ModuleCall(
                    path=path,
                    outputs=tuple(tensors_in(output)),
                    template=without_tensors(output),
                )
                self._seen.calls[-1].modules.append(done)

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


def _guess(func: Any, args: Any, kwargs: Any) -> Any:
    """What an operation on values gives where there are no values."""
    if func is BINCOUNT:
        counts = even_counts(*args, **kwargs)
        if counts is not None:
            return counts
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


def _tensors(values: Any) -> list[torch.Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, torch.Tensor)]


def _keys(values: Any) -> set[int]:
    return {memory_key(x) for x in _tensors(values)}
