"""Floating-point operations of a layer's forward.

Counted per operator by torch, a multiply-add as two. Two kinds that torch leaves
out are counted here: grouped matrix products, which experts use (each row meets
one expert, so the count is that of the chosen experts only), and the CPU's
attention.

Known limitations: attention is counted in full, also where a causal kernel
leaves out half.
"""

from typing import Any

import torch
from torch.utils.flop_counter import (
    FlopCounterMode,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from planner.measure.layer_run import LayerRun


def count_forward_flops(run: LayerRun) -> int:
    """Count one forward of a layer.

    Args:
        run: The layer.

    Returns:
        Operations [FLOP]; a lookup in an embedding is none.
    """
    counter = FlopCounterMode(display=False, custom_mapping=missing_formulas())
    with torch.no_grad(), counter:
        run.forward(run.make_input())
    return int(counter.get_total_flops())


def missing_formulas() -> dict[Any, Any]:
    """Formulas for all operators that torch does not count.

    Returns:
        Operator to formula of its arguments' shapes.
    """
    aten = torch.ops.aten
    return {
        **grouped_products(),
        aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: (
            _attention_backward_flops
        ),
    }


def grouped_products() -> dict[Any, Any]:
    """Formulas for the grouped matrix products that torch does not count.

    Returns:
        Operator to formula of its arguments' shapes, as torch's registry has them.
    """
    found = {torch.ops.aten._grouped_mm: _grouped_mm_flops}
    fallback = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    if fallback is not None:
        found[fallback] = _grouped_mm_flops
    return found


def _grouped_mm_flops(
    rows: tuple[int, ...], matrices: tuple[int, ...], *_: Any, **__: Any
) -> int:
    """Rows (tokens, in) times one of the matrices (experts, in, out) each."""
    return 2 * rows[0] * rows[1] * matrices[-1]


def _attention_flops(
    query: tuple[int, ...],
    key: tuple[int, ...],
    value: tuple[int, ...],
    *_: Any,
    **__: Any,
) -> int:
    return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]


def _attention_backward_flops(
    grad: tuple[int, ...],
    query: tuple[int, ...],
    key: tuple[int, ...],
    value: tuple[int, ...],
    *_: Any,
    **__: Any,
) -> int:
    count = sdpa_backward_flop_count(grad, query, key, value)  # type: ignore[no-untyped-call]
    return int(count)
