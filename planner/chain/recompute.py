"""Recompute: a layer that keeps its inputs only."""

from collections.abc import Callable
from typing import Any

from torch.utils.checkpoint import checkpoint


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
