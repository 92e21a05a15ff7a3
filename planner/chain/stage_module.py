"""One stage, cut out of an unmodified model.

The model's own `forward` runs on every stage, so masks, positions, rotary
embeddings and per-layer attention types stay the model's business:

    stage 0       embedding, blocks 0-1, leave the forward before block 2
    stage 1       stand-in embedding, blocks 0-1 pass on what they get, the
                  received hidden state enters at block 2, leave before block 4
    last stage    the same, then runs on to the end and computes the loss

A stand-in returns zeros of the shape that the real module would return; it
finds the shape by running the real one on meta, where nothing is computed.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import torch

from planner.chain.layers import Chain, Layer
from planner.chain.loss import (
    NoCrossEntropy,
    logits_of,
    loss_of,
    num_targets,
    summed_loss,
)
from planner.chain.nested import Path, value_at, with_value_at
from planner.chain.recompute import recomputed
from planner.chain.replay import Collection
from planner.chain.split_backward import GraphParts
from planner.chain.stand_in import stand_in


class _LeaveForward(BaseException):
    """Carries what the next stage needs out of the model's forward.

    Not an `Exception`, so that no handler inside a model swallows it.
    """

    def __init__(self, outputs: tuple[torch.Tensor, ...]):
        self.outputs = outputs


class StageModule(torch.nn.Module):
    """The layers `first` to `last` of a chain, as a module of their own.

    Args:
        model: The whole model as a skeleton; it is changed in place.
        chain: Its layers.
        first: Index of the first layer of the stage.
        last: Index of the last layer of the stage, inclusive.
        recompute: Names of layers that drop their activations and run F again.

    Raises:
        ModelError: The model cannot be cut before `first`.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        chain: Chain,
        *,
        first: int,
        last: int,
        recompute: tuple[str, ...] = (),
    ):
        super().__init__()
        self.model = model
        self.chain = chain
        self.layers = chain.layers[first : last + 1]
        self.is_first = first == 0
        self.is_last = last == len(chain.layers) - 1
        chain.check_cut(first)
        # Calls of blocks: the first one here, and the first one on a later stage.
        self._enter = chain.calls_before(first)
        self._leave = chain.calls_before(last + 1)
        self._received: dict[tuple[int, Path], torch.Tensor] = {}
        self._sent: dict[tuple[int, Path], torch.Tensor] = {}
        self._num_calls = 0
        self._device = torch.device("cpu")
        self.loose: frozenset[str] = frozenset()
        self.graph_parts = GraphParts()
        self._ends = frozenset(
            call
            for call in chain.calls_between_parts
            if self._enter < call < self._leave or call == len(chain.calls)
        )
        if not self.is_first and chain.num_before:
            self._skip_embedding()
        self._collection = Collection(model, chain, self._enter, self._leave)
        self._cut_blocks(first, last)
        for layer in self.layers:
            if layer.name in recompute:
                self._recompute(layer)

    def forward(
        self,
        *hidden: torch.Tensor,
        labels: torch.Tensor | None = None,
        **inputs: torch.Tensor | None,
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Run the stage's layers on one microbatch.

        Args:
            *hidden: On all stages but the first, the output of the stage before:
                the hidden state (batch, seq_len, hidden) and, in most models
                nothing, what else crosses the cut.
            labels: Target ids, shape (batch, seq_len), not shifted; -100 is
                ignored. Used by the last stage only.
            **inputs: `input_ids`, token ids, shape (batch, seq_len), and
                `attention_mask`, 1 for real tokens, or None if there is no padding;
                the arguments of a user's module as they are.

        Returns:
            The hidden state (batch, seq_len, hidden), in a tuple if something
            else crosses the cut too; on the last stage the sum of the losses of
            all target tokens, a scalar. What the model adds to its mean loss
            while it trains counts once for every target token. If it computes its
            loss itself, the sum over the rows.
        """
        given = {key: x for key, x in inputs.items() if x is not None}
        self._begin(hidden, next(iter(given.values())).device)
        try:
            return self._run({**given, "use_cache": False}, labels)
        except _LeaveForward as left:
            return left.outputs if len(left.outputs) > 1 else left.outputs[0]
        finally:
            self._end()

    def _begin(self, received: Sequence[torch.Tensor], device: torch.device) -> None:
        self._num_calls = 0
        self._device = device
        places = self._places(self._enter)
        self._received = {
            target: tensor
            for targets, tensor in zip(places, received, strict=False)
            for target in targets
        }
        self._collection.begin(received[len(places) :])

    def _end(self) -> None:
        self._received, self._sent = {}, {}
        self._collection.end()

    def _run(self, inputs: dict[str, Any], labels: torch.Tensor | None) -> torch.Tensor:
        """The model's forward; only the last stage comes to its end."""
        if self.chain.computes_loss:
            mean: torch.Tensor = self.model(**inputs, labels=labels).loss
            return mean * len(next(iter(inputs.values())))
        if labels is None or not (self.chain.adds_loss and self.training):
            logits = logits_of(self.model(**inputs))
            return logits if labels is None else summed_loss(logits, labels)
        with NoCrossEntropy():
            output = self.model(**inputs, labels=labels)
        loss = summed_loss(logits_of(output), labels)
        added = loss_of(output)
        if added is not None:
            loss = loss + added * num_targets(labels)
        self._collection.check_use(loss)
        return loss

    def owned_parameters(self, *layers: Layer) -> dict[str, torch.nn.Parameter]:
        """The parameters of the stage's layers, each tensor once.

        Args:
            *layers: Some of the stage's; none stands for all.

        Returns:
            Canonical name, as the model saves it, to parameter.
        """
        canonical = self.chain.canonical
        chosen = layers or self.layers
        names = dict.fromkeys(name for x in chosen for name in x.parameters)
        return {canonical.get(n, n): self.model.get_parameter(n) for n in names}

    def _skip_embedding(self) -> None:
        """Put stand-ins for what runs before the first block only."""
        owned = {name for layer in self.layers for name in layer.parameters}
        skipped = [
            path
            for path in self.chain.layers[0].modules
            if path in self.chain.finished
            and not any(name.rpartition(".")[0] == path for name in owned)
        ]
        for path in skipped:
            module = self.model.get_submodule(path)
            module.forward = stand_in(module, lambda: self._device)
        inside = tuple(f"{block.name}." for block in self.chain.blocks)
        self.loose = frozenset(
            name
            for layer in self.chain.layers
            for name in layer.parameters
            if name not in owned and not name.startswith(inside)
        )

    def _cut_blocks(self, first: int, last: int) -> None:
        """Make blocks of other stages pass on what they get, and watch all calls."""
        calls = self.chain.calls
        if self.is_first and self.is_last:
            return
        for index, layer in enumerate(self.chain.layers):
            if layer not in self.chain.blocks:
                continue
            block = self.model.get_submodule(layer.name)
            if not first <= index <= last:
                block.forward = self._skipped(index, block)
            if index in calls:
                block.register_forward_pre_hook(self._before_block, with_kwargs=True)
        if self._leave == len(calls):
            block = self.model.get_submodule(self.chain.layers[calls[-1]].name)
            block.register_forward_hook(self._after_last_call)

    def _skipped(self, index: int, block: torch.nn.Module) -> Any:
        """What a block of another stage does."""
        name = self.chain.layers[index].name
        calls = self.chain.calls
        is_handed_to_head = self._enter == len(calls) and index == calls[-1]
        if self.chain.has_one_shape or is_handed_to_head:
            return partial(self._pass_on, name)
        return stand_in(block, lambda: self._device)

    def _before_block(self, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        """Hand in what was received, and take what is sent."""
        number = self._num_calls
        self._num_calls += 1
        self._collection.call = number
        given: Any = {**dict(enumerate(args)), **kwargs}
        for (call, path), tensor in self._received.items():
            if call == number:
                tensor = self._hand_in(value_at(given, path), tensor)
                given = with_value_at(given, path, tensor)
        if number >= self._leave and not self.is_last:
            for call, path in self._wanted:
                if call == number:
                    self._sent[call, path] = value_at(given, path)
            if len(self._sent) == len(self._wanted):
                self._leave_with(*(self._sent[x] for x in self._wanted))
        if number in self._ends:
            path = self.chain.handover.input_path
            hidden = self.graph_parts.end_here(value_at(given, path))
            given = with_value_at(given, path, hidden)
        args = tuple(given[i] for i in range(len(args)))
        return args, {key: given[key] for key in kwargs}

    def _hand_in(self, place: Any, tensor: torch.Tensor) -> torch.Tensor:
        if self.chain.handover.in_place and isinstance(place, torch.Tensor):
            return place.copy_(tensor)
        return tensor

    def _after_last_call(self, module: torch.nn.Module, args: Any, output: Any) -> Any:
        if self._num_calls < len(self.chain.calls):
            return output
        index = self.chain.handover.output_index
        hidden = output if index is None else output[index]
        if not self.is_last:
            self._leave_with(hidden)
        if self._num_calls not in self._ends:
            return output
        hidden = self.graph_parts.end_here(hidden)
        return hidden if index is None else with_value_at(output, (index,), hidden)

    def _leave_with(self, *tensors: torch.Tensor) -> NoReturn:
        # Only contiguous memory can be sent.
        sent = (*tensors, *self._collection.sent())
        raise _LeaveForward(tuple(tensor.contiguous() for tensor in sent))

    @property
    def _wanted(self) -> tuple[tuple[int, Path], ...]:
        """Call and path of the first use of all that is sent."""
        return tuple(targets[0] for targets in self._places(self._leave))

    def _places(self, num_calls: int) -> list[tuple[tuple[int, Path], ...]]:
        """Where the arguments that cross a cut are used; the hidden state first.

        The head takes what the last block left: there, the last block passes on.
        """
        handover = self.chain.handover
        hidden_at = min(num_calls, len(self.chain.calls) - 1)
        later = [
            tuple(x for x in extra.targets if x[0] >= num_calls)
            for extra in handover.extras
            if extra.crosses(num_calls)
        ]
        return [((hidden_at, handover.input_path),), *later]

    def _pass_on(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """What a block of another stage does: it returns what was received."""
        handover = self.chain.handover
        hidden = value_at({**dict(enumerate(args)), **kwargs}, handover.input_path)
        output = self._collection.replay(name)
        index = handover.output_index
        if index is None:
            return hidden if output is None else output
        if output is None:
            output = (None,) * handover.output_length
        if output[index] is None:
            output = (*output[:index], hidden, *output[index + 1 :])
        return output

    def _recompute(self, layer: Layer) -> None:
        block = self.model.get_submodule(layer.name)
        block.forward = recomputed(block.forward)
