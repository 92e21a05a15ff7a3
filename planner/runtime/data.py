"""Training data as rows of one shape, and the batches of every step.

Every rank holds the same rows and draws the same order from the same seed, so
inputs on the first stage and labels on the last belong together without a word
between the ranks. All ranks take the same number of steps.

An epoch visits every row once. When the rows do not fill its last batch, the
batch is filled with rows that have no targets: nothing is dropped, and every
step has the same shape.

Known limitations: all rows are held in memory of every rank, 24 bytes a token.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from planner.errors import DataError
from planner.runtime.chats import as_token_lines
from planner.runtime.own_rows import OwnBatch, OwnRows
from planner.runtime.packing import (
    IGNORED,
    Encode,
    LongSamples,
    encode_bytes,
    fit_lines,
    long_note,
    pack_texts,
    pad_lines,
)
from planner.runtime.text_files import Text, TokenLine, read_source

NUM_BYTE_TOKENS = 256


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sequences:
    """All rows of the data, in the order they were read.

    Attributes:
        input_ids: Tokens; (rows, seq_len) int64.
        labels: The same tokens where they are targets, else -100, not shifted;
            (rows, seq_len) int64.
        attention_mask: 0 where nothing may look; (rows, seq_len) int64.
        has_padding: Whether any mask is 0; if not, a model needs no mask.
        source: Where it came from, for errors.
        notes: What a user should know of how they were made.
    """

    input_ids: Tensor
    labels: Tensor
    attention_mask: Tensor
    has_padding: bool
    source: str = ""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.input_ids)

    def tensors(self) -> dict[str, Tensor]:
        """The rows by name, as a model takes them.

        Returns:
            Name to tensor; (rows, seq_len) int64.
        """
        return {
            "input_ids": self.input_ids,
            "labels": self.labels,
            "attention_mask": self.attention_mask,
        }

    def batch(self, rows: Tensor, global_batch_size: int) -> "Batch":
        """The batch of a step.

        Args:
            rows: Which rows; (rows,) int64, at most as many as a step has.
            global_batch_size: Rows of a step.

        Returns:
            The batch, filled up with rows without targets.
        """
        return _batch_of(self, rows, global_batch_size)

    def targets_per_row(self) -> Tensor:
        """How many tokens each row teaches; the first of a row never is a target.

        Returns:
            Counts; (rows,) int64.
        """
        return (self.labels[:, 1:] != IGNORED).sum(dim=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """What one step trains on.

    Attributes:
        input_ids: Tokens; (global_batch_size, seq_len) int64.
        labels: Targets or -100, not shifted; (global_batch_size, seq_len) int64.
        attention_mask: (global_batch_size, seq_len) int64.
        num_target_tokens: What the loss of the step is divided by.
    """

    input_ids: Tensor
    labels: Tensor
    attention_mask: Tensor
    num_target_tokens: int

    @property
    def num_tokens(self) -> int:
        """Tokens, targets or not."""
        return self.input_ids.numel()

    def inputs(self, masked: bool) -> dict[str, Tensor]:
        """What every stage is given.

        Args:
            masked: Whether the model is given the attention mask.

        Returns:
            Name to tensor; (global_batch_size, seq_len) int64.
        """
        given = {"input_ids": self.input_ids, "labels": self.labels}
        return given | ({"attention_mask": self.attention_mask} if masked else {})


def load_sequences(
    source: str,
    *,
    seq_len: int,
    vocab_size: int,
    encode: Encode | None = None,
    eos_id: int | None = None,
    tokenizer: Any | None = None,
    long_samples: LongSamples = "refuse",
) -> Sequences:
    """Read a source and bring it to rows.

    Args:
        source: `builtin`, or a path to a file or a folder.
        seq_len: Tokens of a row.
        vocab_size: Tokens of the model.
        encode: Text to tokens, adding no special ones; None takes UTF-8 bytes.
        eos_id: Put between documents and after completions; None joins them directly.
        tokenizer: Of transformers, to write chats; None if there is none.
        long_samples: What becomes of a sample of more than `seq_len` tokens.

    Returns:
        All rows; at least one has a target.

    Raises:
        DataError: The source cannot be used; says where and why.
    """
    entries = read_source(source)
    samples = [entry for entry in entries if not isinstance(entry, Text)]
    texts = [entry for entry in entries if isinstance(entry, Text)]
    is_written = any(not isinstance(entry, TokenLine) for entry in entries)
    if is_written and encode is None and vocab_size < NUM_BYTE_TOKENS:
        msg = (
            f"without a tokenizer text is trained as bytes, which needs a vocabulary "
            f"of {NUM_BYTE_TOKENS}, but the model has {vocab_size}; give lines of "
            "input_ids with --data"
        )
        raise DataError(msg)
    encode = encode or encode_bytes
    sizes = {"seq_len": seq_len, "vocab_size": vocab_size}
    if texts:
        rows = pack_texts(texts, **sizes, encode=encode, eos_id=eos_id)
        return _checked(*rows, source=source)
    lines = as_token_lines(samples, tokenizer=tokenizer, encode=encode, eos_id=eos_id)
    fitting = fit_lines(lines, seq_len, long_samples)
    rows = pad_lines(fitting, **sizes, pad_id=eos_id or 0)
    note = long_note(lines, seq_len, long_samples)
    return replace(_checked(*rows, source=source), notes=(note,) if note else ())


def _checked(
    input_ids: Tensor, labels: Tensor, attention_mask: Tensor, *, source: str
) -> Sequences:
    sequences = Sequences(
        input_ids=input_ids,
        labels=labels,
        attention_mask=attention_mask,
        has_padding=bool((attention_mask == 0).any()),
        source=source,
    )
    if not sequences.targets_per_row().any():
        msg = (
            f"{source} has no target token: all labels but the first of a sequence "
            f"are {IGNORED}; give longer text or other labels"
        )
        raise DataError(msg)
    return sequences


def steps_per_epoch(num_rows: int, global_batch_size: int) -> int:
    """Steps of one pass over the data, the last one perhaps not full.

    Args:
        num_rows: Of the data.
        global_batch_size: Rows of one step.

    Returns:
        num_rows / global_batch_size, rounded up.
    """
    return -(-num_rows // global_batch_size)


def batches(
    sequences: Sequences | OwnRows,
    *,
    global_batch_size: int,
    num_steps: int,
    shuffle: bool,
    seed: int,
    num_done: int = 0,
) -> Iterator[Batch | OwnBatch]:
    """The batch of every step; the same on every rank that calls it.

    Args:
        sequences: The data.
        global_batch_size: Rows of one step.
        num_steps: Steps in all; epochs follow one another.
        shuffle: A new order every epoch, else always the order of the data.
        seed: Of the order.
        num_done: Steps done before, whose batches are left out.

    Returns:
        An iterator over `num_steps - num_done` batches.

    Raises:
        DataError: A step would have no target token. Raised by the call itself,
            before the first batch.
    """
    steps = list(
        _rows_of_steps(len(sequences), global_batch_size, num_steps, shuffle, seed)
    )
    targets_per_row = sequences.targets_per_row()
    for number, rows in enumerate(steps, start=1):
        if not targets_per_row[rows].any():
            msg = (
                f"step {number} would have no target token: the labels of its "
                f"{len(rows)} sequences of {sequences.source} are all {IGNORED}; "
                "leave such sequences out or use a larger --global-batch-size"
            )
            raise DataError(msg)
    return (sequences.batch(rows, global_batch_size) for rows in steps[num_done:])


def batches_once(sequences: Sequences, global_batch_size: int) -> Iterator[Batch]:
    """All rows once, in their order; the last batch is filled up.

    Args:
        sequences: The data.
        global_batch_size: Rows of a batch.

    Yields:
        One batch after the other.
    """
    for rows in torch.split(torch.arange(len(sequences)), global_batch_size):
        yield sequences.batch(rows, global_batch_size)


def _rows_of_steps(
    num_rows: int, global_batch_size: int, num_steps: int, shuffle: bool, seed: int
) -> Iterator[Tensor]:
    """Which rows each step takes; fewer in the last step of an epoch."""
    generator = torch.Generator().manual_seed(seed)
    in_order = torch.arange(num_rows)
    num_left = num_steps
    while num_left > 0:
        order = torch.randperm(num_rows, generator=generator) if shuffle else in_order
        for rows in torch.split(order, global_batch_size)[:num_left]:
            yield rows.clone()  # a view would keep the whole order
            num_left -= 1


def _batch_of(sequences: Sequences, rows: Tensor, global_batch_size: int) -> Batch:
    shape = (global_batch_size - len(rows), sequences.input_ids.shape[1])
    labels = torch.cat([sequences.labels[rows], torch.full(shape, IGNORED)])
    return Batch(
        input_ids=torch.cat(
            [sequences.input_ids[rows], torch.zeros(shape, dtype=torch.int64)]
        ),
        labels=labels,
        attention_mask=torch.cat(
            [sequences.attention_mask[rows], torch.ones(shape, dtype=torch.int64)]
        ),
        num_target_tokens=int((labels[:, 1:] != IGNORED).sum()),
    )
