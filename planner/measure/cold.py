"""Layers as a stage finds them: pushed out of the cache by all the others.

A layer that is run again and again by itself keeps its weights in the cache of a CPU
or a card; in a stage the other layers, and at the end of a step the optimizer, take
their place. So a small layer is timed as a row of copies, and where even a row could
stay in the cache, something else is touched before every action.
"""

from collections.abc import Callable
from math import ceil
from typing import Any

import torch

from planner.measure.layer_run import LayerRun
from planner.measure.stopwatch import Stopwatch
from planner.units import MIB

# More than what caches keep for one process.
_COLD_BYTES = 256 * MIB
# Read in less time than an action needs to begin.
_TINY_BYTES = MIB
_MOST_COPIES = 16


class ColdStopwatch(Stopwatch):
    """Empties the cache before every action, outside its time.

    Args:
        device: Where the actions run.
    """

    def __init__(self, device: torch.device):
        super().__init__(device)
        self._scratch = torch.zeros(_COLD_BYTES // 4, device=device)

    def run(self, name: str, work: Callable[[], Any]) -> Any:
        """Do some work and note when it began and ended.

        Args:
            name: Of the action, such as `F`.
            work: What to do.

        Returns:
            What `work` returns.
        """
        self._scratch.add_(1.0)
        return super().run(name, work)


def num_copies(layer_bytes: int, num_alike: int) -> int:
    """How many copies of a layer are timed in a row.

    Args:
        layer_bytes: Of its weights, their gradients and what it keeps from F to B
            [bytes].
        num_alike: Layers of the model that cost the same: a stage has no more.

    Returns:
        At least 1.
    """
    needed = ceil(_COLD_BYTES / layer_bytes) if layer_bytes else 1
    return min(needed, num_alike, _MOST_COPIES)


def stopwatch_for(run: LayerRun, device: torch.device) -> Stopwatch:
    """What takes the times of a row of copies.

    Args:
        run: The row.
        device: Where it runs.

    Returns:
        A stopwatch that empties the cache, unless the weights and their gradients
        are more than a cache holds or too small to matter.
    """
    weights_bytes = 2 * sum(p.nbytes for p in run.parameters)
    if _TINY_BYTES < weights_bytes < _COLD_BYTES:
        return ColdStopwatch(device)
    return Stopwatch(device)
