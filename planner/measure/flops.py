"""Floating-point operations of a layer's forward.

Counted per operator by torch, a multiply-add as two. Grouped matrix products,
which experts use, are counted here: each row meets one expert, so the count is
that of the chosen experts only.
"""

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from planner.measure.layer_run import LayerRun


def count_forward_flops(run: LayerRun) -> int:
    """Count one forward of a layer.

    Args:
        run: The layer.

    Returns:
        Operations [FLOP]; a lookup in an embedding is none.
    """
    counter = FlopCounterMode(display=False, custom_mapping=grouped_products())
    with torch.no_grad(), counter:
        run.forward(run.make_input())
    return int(counter.get_total_flops())


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
