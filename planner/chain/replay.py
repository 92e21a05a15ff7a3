"""What a model collects from modules inside its blocks, on one stage of it.

On the stage that holds a block, hooks keep what is collected from it. On later
stages the modules are called again, in name only, when the model comes to the block:
they return what was received, and whatever the model does to collect it works.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from planner.chain.crossing import Replay
from planner.chain.layers import Chain
from planner.chain.loss import leaves_of
from planner.chain.nested import value_at, with_value_at
from planner.errors import ModelError


class Collection:
    """The collected tensors of one microbatch.

    Args:
        model: The whole model; modules of other stages are changed in place.
        chain: Its layers.
        enter: Number of the first call of a block on this stage.
        leave: Number of the first call on a later stage.

    Attributes:
        call: Number of the call of a block that is running.
    """

    def __init__(self, model: torch.nn.Module, chain: Chain, enter: int, leave: int):
        self.call = -1
        self._model = model
        self._chain = chain
        self._enter, self._leave = enter, leave
        self._tensors: dict[int, torch.Tensor] = {}
        self._num_calls: Counter[tuple[int, str]] = Counter()
        self._is_running = False
        self._is_checked = False
        self._replayed: Any = None
        self._keep_what_is_made_here()
        self._mute_what_is_not()

    def begin(self, received: Sequence[torch.Tensor]) -> None:
        """Start a forward.

        Args:
            received: What was collected on earlier stages, in the order of `sent`.
        """
        numbers = self._crossing(self._enter)
        self._tensors = dict(zip(numbers, received, strict=True))
        self._num_calls.clear()
        self._is_running = True

    def end(self) -> None:
        """Forget all tensors."""
        self._tensors = {}
        self._replayed = None
        self._is_running = False

    def sent(self) -> tuple[torch.Tensor, ...]:
        """What later stages need of all that was collected so far.

        Returns:
            The tensors, in the order of the calls that they come from.
        """
        return tuple(self._tensors[number] for number in self._crossing(self._leave))

    def replay(self, name: str) -> Any:
        """Do what the model sees of a block of another stage.

        Args:
            name: Path of the block that is called.

        Returns:
            The block's output as far as it was collected, None for the rest.
        """
        output = None
        for replay in self._chain.handover.replays.get(self.call, ()):
            replayed = self._filled(replay)
            if replay.module == name:
                output = replayed
            else:
                self._replayed = replayed
                self._model.get_submodule(replay.module)()
        return output

    def check_use(self, loss: torch.Tensor) -> None:
        """Make sure that all that was received is a part of the loss; done once.

        Args:
            loss: Of the last stage.

        Raises:
            ModelError: It is not: a module keeps it in another way than by
                returning it.
        """
        if self._is_checked or not loss.requires_grad:
            return
        used = {id(leaf) for leaf in leaves_of(loss)}
        for number, tensor in self._tensors.items():
            needed = tensor.is_leaf and tensor.requires_grad
            if needed and id(tensor) not in used:
                module = self._chain.handover.collected[number].source[0]
                msg = (
                    f"the model adds to its loss what {module} returned, but not by "
                    "way of that output; it can be cut only behind all such modules"
                )
                raise ModelError(msg)
        self._is_checked = True

    def _crossing(self, num_calls: int) -> list[int]:
        """Numbers of the collected tensors that cross a cut."""
        collected = self._chain.handover.collected
        return [i for i, x in enumerate(collected) if x.crosses(num_calls)]

    def _is_here(self, call: int) -> bool:
        return self._enter <= call < self._leave

    def _keep_what_is_made_here(self) -> None:
        for number, found in enumerate(self._chain.handover.collected):
            if self._is_here(found.call):
                module = self._model.get_submodule(found.source[0])
                module.register_forward_hook(partial(self._keep, number))

    def _keep(
        self, number: int, module: torch.nn.Module, args: Any, output: Any
    ) -> None:
        found = self._chain.handover.collected[number]
        path, before, where = found.source
        # A recompute runs modules again, after the forward.
        if not self._is_running or self.call != found.call:
            return
        if self._num_calls[number, path] == before:
            self._tensors[number] = value_at(output, where)
        self._num_calls[number, path] += 1

    def _mute_what_is_not(self) -> None:
        for call, replays in self._chain.handover.replays.items():
            block = self._chain.layers[self._chain.calls[call]].name
            for replay in replays:
                if not self._is_here(call) and replay.module != block:
                    module: Any = self._model.get_submodule(replay.module)
                    module.forward = partial(self._say_again, module.forward)

    def _say_again(self, forward: Callable[..., Any], /, *args: Any, **kw: Any) -> Any:
        # Blocks of several stages may share a module.
        return forward(*args, **kw) if self._is_here(self.call) else self._replayed

    def _filled(self, replay: Replay) -> Any:
        output = replay.template
        for path, number in replay.outputs:
            output = with_value_at(output, path, self._tensors.get(number))
        return output
