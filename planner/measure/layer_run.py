"""One layer by itself, ready to be run again and again.

A block is called with exactly the arguments that the model handed it; the
embedding and the head are run as stages that hold nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from planner.chain.nested import value_at, with_value_at
from planner.chain.recompute import recomputed
from planner.chain.split_backward import GraphParts
from planner.chain.stage_module import StageModule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerRun:
    """A layer with its inputs.

    Attributes:
        forward: From the hidden state of the layer before (None for the first
            layer) to the layer's output.
        leaf: A hidden state that requires grad, or None for the first layer.
        parameters: The layer's, each tensor once.
        others: Tensors that are alive besides: masks, positions, token ids.
        extras: What crosses the cut before the layer besides the hidden state.
        graph_parts: Of a run of several layers: ends its graph between them.
        ends_graph: Whether the graph of a stage ends with it, see `GraphParts`; for the
            last layer, whether it begins with it.
    """

    forward: Callable[[torch.Tensor | None], torch.Tensor]
    leaf: torch.Tensor | None
    parameters: tuple[torch.nn.Parameter, ...]
    others: tuple[torch.Tensor, ...] = ()
    extras: tuple[torch.Tensor, ...] = ()
    graph_parts: GraphParts = field(default_factory=GraphParts)
    ends_graph: bool = True

    def make_input(self) -> torch.Tensor | None:
        """A fresh hidden state, as a receive buffer would hold it.

        Returns:
            A tensor of its own memory, or None for the first layer.
        """
        return None if self.leaf is None else self.leaf.clone()

    def live_tensors(self) -> Sequence[torch.Tensor]:
        """Everything that is alive before the layer runs.

        Returns:
            Parameters, their gradients, inputs and whatever else the run holds.
        """
        grads = [p.grad for p in self.parameters if p.grad is not None]
        leaf = [] if self.leaf is None else [self.leaf]
        return [*self.parameters, *grads, *self.others, *self.extras, *leaf]

    def drop_gradients(self) -> None:
        """Forget the gradients of parameters and input."""
        for parameter in self.parameters:
            parameter.grad = None
        self.drop_input_gradients()

    def drop_input_gradients(self) -> None:
        """Forget the gradients of what crosses the cut before the layer."""
        for extra in self.extras:
            extra.grad = None
        if self.leaf is not None:
            self.leaf.grad = None


def stage_run(
    stage: StageModule,
    received: Sequence[torch.Tensor],
    rows: Mapping[str, torch.Tensor],
) -> LayerRun:
    """A whole stage as a layer run.

    Args:
        stage: The stage.
        received: Like the output of the stage before: the hidden state (batch,
            seq_len, hidden) and what else crosses the cut; empty for the first.
        rows: Inputs of the model by name, such as `input_ids`, and `labels`.

    Returns:
        The run; its output is the hidden state, on the last stage the loss.
    """
    inputs = {k: x for k, x in rows.items() if k != "labels"}
    labels = rows.get("labels") if stage.is_last else None
    leaves = tuple(x.detach().requires_grad_(x.is_floating_point()) for x in received)
    extras = leaves[1:]

    def forward(received: torch.Tensor | None) -> torch.Tensor:
        given = () if received is None else (received, *extras)
        output = stage(*given, **inputs, labels=labels)
        hidden: torch.Tensor = output[0] if isinstance(output, tuple) else output
        return hidden

    return LayerRun(
        forward=forward,
        leaf=leaves[0] if leaves else None,
        parameters=tuple(stage.owned_parameters().values()),
        others=(*rows.values(), *stage.model.buffers()),
        extras=extras,
        graph_parts=stage.graph_parts,
        ends_graph=_ends_graph(stage),
    )


def block_run(
    stage: StageModule, whole: LayerRun, *, recompute: bool = False
) -> LayerRun:
    """The last block of a stage, without what the model does around it.

    Args:
        stage: A stage that ends with the block; the others before it give the
            block what it cannot be run without.
        whole: The stage as a run, from `stage_run`.
        recompute: Whether the block keeps its inputs only.

    Returns:
        The run: the block, called with what the model hands it.
    """
    layer = stage.layers[-1]
    block = stage.model.get_submodule(layer.name)
    args, kwargs = _caught_arguments(block, whole)
    path = stage.chain.handover.input_path
    index = stage.chain.handover.output_index
    # Not the block itself: its hooks belong to the stage.
    forward = recomputed(block.forward) if recompute else block.forward

    def call(received: torch.Tensor | None) -> torch.Tensor:
        given = with_value_at({**dict(enumerate(args)), **kwargs}, path, received)
        output = forward(
            *(given[i] for i in range(len(args))), **{k: given[k] for k in kwargs}
        )
        found: torch.Tensor = output if index is None else output[index]
        return found

    hidden = value_at({**dict(enumerate(args)), **kwargs}, path)
    others = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    return LayerRun(
        forward=call,
        leaf=hidden.detach().requires_grad_(),
        parameters=tuple(stage.owned_parameters(layer).values()),
        others=(*whole.others, *others),
        extras=whole.extras,
        ends_graph=_ends_graph(stage),
    )


def chained(runs: Sequence[LayerRun]) -> LayerRun:
    """Copies of a layer, one after the other, as a run of its own.

    Args:
        runs: The copies; with several, the output of each is like its input.

    Returns:
        The run, from the input of the first to the output of the last.
    """
    if len(runs) == 1:
        return runs[0]
    parts = GraphParts()

    def forward(received: torch.Tensor | None) -> torch.Tensor:
        hidden = runs[0].forward(received)
        for run in runs[1:]:
            if runs[0].ends_graph:
                hidden = parts.end_here(hidden)
            hidden = run.forward(hidden)
        return hidden

    return LayerRun(
        forward=forward,
        leaf=runs[0].leaf,
        parameters=tuple(p for run in runs for p in run.parameters),
        others=tuple(x for run in runs for x in run.others),
        extras=tuple(x for run in runs for x in run.extras),
        graph_parts=parts,
        ends_graph=runs[0].ends_graph,
    )


def _ends_graph(stage: StageModule) -> bool:
    """Whether the graph of a longer stage would end where this one does."""
    chain = stage.chain
    after = chain.layers.index(stage.layers[-1]) + 1
    return chain.calls_before(after) in chain.calls_between_parts


def _caught_arguments(
    block: torch.nn.Module, whole: LayerRun
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the model hands a block."""
    caught: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def catch(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        caught.append((args, kwargs))

    hook = block.register_forward_pre_hook(catch, with_kwargs=True)
    try:
        with torch.no_grad():
            whole.forward(whole.make_input())
    finally:
        hook.remove()
    return caught[0]
