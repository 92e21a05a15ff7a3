"""One stage, cut out of an unmodified model.

The model's own `forward` runs on every stage, so masks, positions, rotary
embeddings and per-layer attention types stay the model's business:

    stage 0       embedding, blocks 0-1, then leave the forward early
    stage 1       stand-in embedding, blocks 0-1 pass on what they get, the
                  received hidden state enters at block 2, leave after block 3
    last stage    the same, then runs on to the end and computes the loss

A stand-in returns zeros of the shape that the real module would return; it
finds the shape by running the real one on meta, where nothing is computed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

from planner.chain.layers import Chain, Layer

IGNORED_LABEL = -100


class _LeaveForward(BaseException):
    """Carries the hidden state out of the model's forward.

    Not an `Exception`, so that no handler inside a model swallows it.
    """

    def __init__(self, hidden: torch.Tensor):
        self.hidden = hidden


class StageModule(torch.nn.Module):
    """The layers `first` to `last` of a chain, as a module of their own.

    Args:
        model: The whole model as a skeleton; it is changed in place.
        chain: Its layers.
        first: Index of the first layer of the stage.
        last: Index of the last layer of the stage, inclusive.
        recompute: Names of layers that drop their activations and run F again.
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
        self._received: torch.Tensor | None = None
        if not self.is_first:
            self._skip_to(first)
        if not self.is_last:
            self._leave_after(last)
        for layer in self.layers:
            if layer.name in recompute:
                self._recompute(layer)

    def forward(
        self,
        *hidden: torch.Tensor,
        input_ids: torch.Tensor,
        labels: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Run the stage's layers on one microbatch.

        Args:
            *hidden: On all stages but the first, the output of the stage before,
                shape (batch, seq_len, hidden).
            input_ids: Token ids, shape (batch, seq_len).
            labels: Target ids, shape (batch, seq_len), not shifted; -100 is
                ignored. Used by the last stage only.
            attention_mask: 1 for real tokens, shape (batch, seq_len); None if
                there is no padding.

        Returns:
            The hidden state (batch, seq_len, hidden), or on the last stage the
            sum of the losses of all target tokens, a scalar.
        """
        self._received = hidden[0] if hidden else None
        inputs: dict[str, Any] = {"input_ids": input_ids, "use_cache": False}
        if attention_mask is not None:
            inputs["attention_mask"] = attention_mask
        try:
            output = self.model(**inputs)
        except _LeaveForward as left:
            return left.hidden
        finally:
            self._received = None
        logits: torch.Tensor = output[0] if isinstance(output, tuple) else output.logits
        if labels is None:
            return logits
        return summed_loss(logits, labels)

    def owned_parameters(self) -> dict[str, torch.nn.Parameter]:
        """The parameters of the stage's layers, each tensor once.

        Returns:
            Canonical name, as the model saves it, to parameter.
        """
        canonical = self.chain.canonical
        names = dict.fromkeys(name for x in self.layers for name in x.parameters)
        return {canonical.get(n, n): self.model.get_parameter(n) for n in names}

    def _skip_to(self, first: int) -> None:
        """Replace all that runs before layer `first`."""
        kept = {m for layer in self.layers for m in layer.modules}
        for path in self.chain.layers[0].modules:
            if path not in kept:
                module = self.model.get_submodule(path)
                module.forward = _stand_in(module)
        for layer in self.chain.layers[1:first]:
            if layer.modules and layer in self.chain.blocks:
                block = self.model.get_submodule(layer.name)
                block.forward = self._pass_on
        if not self._owns_a_block:
            # Only the head is here: the last block passes the received state on.
            self._enter_at(self.chain.blocks[-1])
        else:
            self._enter_at(self.layers[0])

    @property
    def _owns_a_block(self) -> bool:
        return any(layer in self.chain.blocks for layer in self.layers)

    def _enter_at(self, layer: Layer) -> None:
        key = self.chain.handover.input_key

        def enter(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
            if isinstance(key, int):
                return (*args[:key], self._received, *args[key + 1 :]), kwargs
            return args, {**kwargs, key: self._received}

        block = self.model.get_submodule(layer.name)
        block.register_forward_pre_hook(enter, with_kwargs=True)

    def _leave_after(self, last: int) -> None:
        """Leave the model's forward once layer `last` has run."""
        index = self.chain.handover.output_index
        key = self.chain.handover.input_key

        def leave(module: torch.nn.Module, args: Any, output: Any) -> None:
            raise _LeaveForward(output if index is None else output[index])

        def leave_early(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
            raise _LeaveForward(args[key] if isinstance(key, int) else kwargs[key])

        if last == 0:
            first_block = self.model.get_submodule(self.chain.blocks[0].name)
            first_block.register_forward_pre_hook(leave_early, with_kwargs=True)
        else:
            block = self.model.get_submodule(self.chain.layers[last].name)
            block.register_forward_hook(leave)

    def _pass_on(self, *args: Any, **kwargs: Any) -> Any:
        """What a block of another stage does: nothing."""
        handover = self.chain.handover
        key = handover.input_key
        hidden = args[key] if isinstance(key, int) else kwargs[key]
        if handover.output_index is None:
            return hidden
        output = [None] * handover.output_length
        output[handover.output_index] = hidden
        return tuple(output)

    def _recompute(self, layer: Layer) -> None:
        block = self.model.get_submodule(layer.name)
        block.forward = recomputed(block.forward)


def recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A layer's forward that keeps its inputs only and runs again before B.

    Args:
        forward: The layer's own.

    Returns:
        The same function with recompute.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        # Re-entrant recompute breaks on every stage but the first.
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return run


def summed_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Next-token cross-entropy, summed over the target tokens.

    Args:
        logits: Shape (batch, seq_len, vocab).
        labels: Target ids, shape (batch, seq_len), not shifted; -100 is ignored.

    Returns:
        A scalar in fp32: divide it by the number of target tokens of the whole
        step, not of the microbatch.
    """
    targets = torch.nn.functional.pad(labels[..., 1:], (0, 1), value=IGNORED_LABEL)
    return torch.nn.functional.cross_entropy(
        logits.float().flatten(0, -2),
        targets.flatten(),
        ignore_index=IGNORED_LABEL,
        reduction="sum",
    )


def _stand_in(module: torch.nn.Module) -> Callable[..., Any]:
    """A forward that returns zeros of the shape and dtype of the real one."""
    real = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        devices: list[torch.device] = []

        def to_meta(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                devices.append(value.device)
                return value.to("meta")
            return value

        def zeros(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                zero = torch.zeros((), dtype=value.dtype, device=devices[0])
                return zero.expand(value.shape)
            return value

        with torch.no_grad(), _buffers_on_meta(module):
            output = real(*tree_map(to_meta, args), **tree_map(to_meta, kwargs))
        return tree_map(zeros, output)

    return forward


@contextmanager
def _buffers_on_meta(module: torch.nn.Module) -> Iterator[None]:
    """Hide a module's buffers: on a card, meta tensors do not mix with them."""
    real = dict(module._buffers)
    for name, buffer in real.items():
        module._buffers[name] = None if buffer is None else buffer.to("meta")
    try:
        yield
    finally:
        module._buffers.update(real)
