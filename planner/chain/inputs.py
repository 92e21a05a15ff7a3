"""Rows to try a model with: token ids, or what a user's module brings."""

import torch

from planner.chain.source import ModelSource


def make_rows(
    source: ModelSource,
    shape: tuple[int, int],
    *,
    dtype: torch.dtype,
    device: torch.device,
    token: int | None = None,
) -> dict[str, torch.Tensor]:
    """Inputs and labels of one microbatch.

    Args:
        source: The model.
        shape: Rows and, for token ids, tokens of each.
        dtype: Of fractions.
        device: Where the rows go.
        token: Fill the ids with it; None draws them at random.

    Returns:
        Arguments of a forward by name, `labels` among them if there are any.
    """
    if source.rows is not None:
        return {
            name: _resized(rows, shape[0], dtype).to(device)
            for name, rows in source.rows.items()
        }
    if token is None:
        size = int(source.config.get_text_config(decoder=True).vocab_size)
        ids = torch.randint(0, size, shape).to(device)
    else:
        ids = torch.full(shape, token, device=device)
    return {"input_ids": ids, "labels": ids}


def _resized(rows: torch.Tensor, num_rows: int, dtype: torch.dtype) -> torch.Tensor:
    """As many rows as wanted, from the start again when they are used up."""
    chosen = torch.arange(num_rows) % len(rows)
    found = rows[chosen]
    return found.to(dtype) if found.is_floating_point() else found
