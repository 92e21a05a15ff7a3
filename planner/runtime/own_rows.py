"""Rows that a user's module brings itself, in place of a text."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnBatch:
    """What one step trains on.

    Attributes:
        rows: Arguments of the module by name, maybe `labels`;
            (global_batch_size, ...) each.
    """

    rows: Mapping[str, Tensor]

    @property
    def num_target_tokens(self) -> int:
        """Rows: the loss of the step is their mean."""
        return len(next(iter(self.rows.values())))

    @property
    def num_tokens(self) -> int:
        """Rows, each counted as one."""
        return self.num_target_tokens

    def inputs(self, masked: bool) -> dict[str, Tensor]:
        """What every stage is given.

        Args:
            masked: Means nothing here.

        Returns:
            Name to tensor; (global_batch_size, ...) each.
        """
        return dict(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnRows:
    """All rows, in the order they were given.

    Attributes:
        rows: Arguments of the module by name, maybe `labels`; (rows, ...) each.
        source: Where they came from, for errors.
        has_padding: Never.
        notes: None.
    """

    rows: Mapping[str, Tensor]
    source: str = ""
    has_padding: bool = False
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.rows.values())))

    def tensors(self) -> dict[str, Tensor]:
        """The rows by name.

        Returns:
            Name to tensor; (rows, ...) each.
        """
        return dict(self.rows)

    def targets_per_row(self) -> Tensor:
        """Every row is one target.

        Returns:
            Counts; (rows,) int64.
        """
        return torch.ones(len(self), dtype=torch.int64)

    def batch(self, rows: Tensor, global_batch_size: int) -> OwnBatch:
        """The batch of a step.

        Args:
            rows: Which rows; (rows,) int64, at most as many as a step has.
            global_batch_size: Rows of a step.

        Returns:
            The batch; where there are too few, the same rows come again.
        """
        chosen = rows[torch.arange(global_batch_size) % len(rows)]
        return OwnBatch(rows={name: x[chosen] for name, x in self.rows.items()})
