"""Times without the card: every operator is as fast as its slower limit.

An operator takes the time of its FLOPs on the matrix units or of its bytes
through the card's memory, whichever is longer, and at least a launch. The
efficiencies are what large operators reach of the makers' figures.

Known limitations: operators do not overlap; caches are ignored; the efficiencies
are the same for all cards.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, shape_wrapper

from planner.catalogue import Card
from planner.measure.flops import missing_formulas
from planner.measure.layer_run import LayerRun
from planner.measure.timed import LayerTimes
from planner.model_profile import Efficiency

EFFICIENCY = Efficiency(matrix=0.75, memory=0.80, launch_s=5e-6)

# Operators that start nothing on the card.
_FREE = ("prim", "aten::empty", "aten::new_empty", "aten::_unsafe_view")
_LOOKUPS = (
    torch.ops.aten.embedding,
    torch.ops.aten.gather,
    torch.ops.aten.index,
    torch.ops.aten.index_select,
)


class RooflineClock(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the time of the operators that run inside it.

    Args:
        card: Whose rates to use.
        dtype: Of the matrix products.

    Attributes:
        elapsed_s: So far [s].
    """

    def __init__(self, card: Card, dtype: torch.dtype):
        super().__init__()  # type: ignore[no-untyped-call]
        rate = card.bf16_flops if dtype == torch.bfloat16 else card.fp32_flops
        self._flops_per_s = rate * EFFICIENCY.matrix
        self._bytes_per_s = card.memory_bandwidth * EFFICIENCY.memory
        ours = {
            op: shape_wrapper(formula)  # type: ignore[no-untyped-call]
            for op, formula in missing_formulas().items()
        }
        self._formulas = {**flop_registry, **ours}
        self.elapsed_s = 0.0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func.is_view or func._schema.name.startswith(_FREE) or _is_meta(result):
            return result
        flops = 0
        if formula := self._formulas.get(func.overloadpacket):
            flops = formula(*args, **kwargs, out_val=result)
        # What is looked up is as large as the result, not as the whole table.
        looked_up = func.overloadpacket in _LOOKUPS
        read = (result, args[1:], kwargs) if looked_up else (args, kwargs)
        num_bytes = _num_bytes(read) + _num_bytes(result)
        self.elapsed_s += max(
            EFFICIENCY.launch_s,
            flops / self._flops_per_s,
            num_bytes / self._bytes_per_s,
        )
        return result


def _is_meta(result: Any) -> bool:
    return any(isinstance(x, torch.Tensor) and x.is_meta for x in tree_leaves(result))


def _num_bytes(values: Any) -> int:
    """Of all tensors, each once; what is expanded is read once."""
    tensors = {id(x): x for x in tree_leaves(values) if isinstance(x, torch.Tensor)}
    return sum(
        min(x.numel() * x.element_size(), x.untyped_storage().nbytes())
        for x in tensors.values()
    )


def estimate_times(run: LayerRun, card: Card, dtype: torch.dtype) -> LayerTimes:
    """Time a layer on a card that is not there.

    Args:
        run: The layer, of fake tensors.
        card: The card.
        dtype: Of the layer's matrix products.

    Returns:
        Its times by the roofline.
    """
    for parameter in run.parameters:
        # From the second microbatch on, gradients are added to what is there.
        parameter.grad = torch.zeros_like(parameter)
    hidden = run.make_input()
    with RooflineClock(card, dtype) as forward:
        output = run.forward(hidden)
    grad = torch.ones_like(output)
    with RooflineClock(card, dtype) as backward:
        torch.autograd.backward(output, grad)
    input_s = 0.0
    if run.leaf is not None:
        output = run.forward(run.make_input())
        with RooflineClock(card, dtype) as only_input:
            torch.autograd.grad(output, run.leaf, grad)
        input_s = min(only_input.elapsed_s, backward.elapsed_s)
    run.drop_gradients()
    return LayerTimes(
        forward_s=forward.elapsed_s,
        backward_s=backward.elapsed_s,
        input_grad_s=input_s,
        weight_grad_s=backward.elapsed_s - input_s,
    )


# Of one parameter, as counted over the operations of `adamw-bf16` [bytes].
_ROUNDED_STEP_MOVES = 148


def optimizer_seconds(card: Card, dtype: torch.dtype) -> dict[str, float]:
    """Time of an optimizer step of one parameter on a card that is not there.

    Args:
        card: The card.
        dtype: Of the weights; bfloat16 ones have an fp32 master copy.

    Returns:
        Optimizer name to time [s], bound by memory bandwidth.
    """
    # Bytes of one parameter. The norm reads the gradient, clipping reads and
    # writes it; the step reads gradient and weight and writes the weight.
    fp32, bf16 = 4, 2
    moved = 3 * fp32 + 3 * fp32
    if dtype != torch.float32:
        # The gradient is converted before the step and the weight after it.
        moved = 3 * bf16 + (bf16 + fp32) + 3 * fp32 + (fp32 + bf16)
    # AdamW also reads and writes two states.
    by_name = {"adamw": moved + 4 * fp32, "sgd": moved}
    if dtype != torch.float32:
        by_name["adamw-bf16"] = 3 * bf16 + _ROUNDED_STEP_MOVES
    rate = card.memory_bandwidth * EFFICIENCY.memory
    return {name: num_bytes / rate for name, num_bytes in by_name.items()}
