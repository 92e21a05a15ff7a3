"""Brings documents and token lines to rows of one fixed length.

Text is packed: documents are joined, with the end-of-sequence token between
them, and cut into rows; the last row is filled up. A token line is a row of its
own and is filled up. Filled positions have the label -100, so they are no
targets. Labels stand at the position of their token, as in Hugging Face models:
the loss shifts them.

Text rows have no masked positions, not even the filled ones: these come last,
and in a causal model no earlier position looks at them. So a model trained on
text can be called without a mask, which is its fastest path.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from planner.errors import DataError
from planner.runtime.text_files import Text, TokenLine

IGNORED = -100
Encode = Callable[[str], Sequence[int]]
LongSamples = Literal["refuse", "truncate", "split"]
# input_ids, labels and attention_mask, each (rows, seq_len) int64.
Rows = tuple[Tensor, Tensor, Tensor]


def encode_bytes(text: str) -> Sequence[int]:
    """Tokenise for a model without a tokenizer: UTF-8 bytes are the tokens.

    Args:
        text: Any text.

    Returns:
        Tokens from 0 to 255.
    """
    return text.encode()


def pack_texts(
    texts: Sequence[Text],
    *,
    seq_len: int,
    vocab_size: int,
    encode: Encode,
    eos_id: int | None,
) -> Rows:
    """Join documents and cut them into rows; the last row is filled up.

    Args:
        texts: Documents, in order.
        seq_len: Tokens of a row.
        vocab_size: Tokens are below it.
        encode: Text to tokens.
        eos_id: Put between documents; None joins them directly.

    Returns:
        input_ids, labels and attention_mask, each (rows, seq_len) int64.

    Raises:
        DataError: A token is not in the vocabulary.
    """
    separator = [] if eos_id is None else [torch.tensor([eos_id])]
    pieces: list[Tensor] = []
    for text in texts:
        tokens = _as_tensor(encode(text.text))
        _check_tokens(tokens, vocab_size, text.origin)
        pieces += (separator if pieces else []) + [tokens]
    stream = torch.cat(pieces)
    # A last row of one token would teach nothing: it takes one more along.
    alone = len(stream) % seq_len == 1 and len(stream) > seq_len > 2
    parts = (stream[:-2], stream[-2:]) if alone else (stream,)
    input_ids = torch.cat([_fill(part, seq_len, eos_id or 0) for part in parts])
    labels = torch.cat([_fill(part, seq_len, IGNORED) for part in parts])
    return input_ids, labels, torch.ones_like(input_ids)


def _fill(stream: Tensor, seq_len: int, value: int) -> Tensor:
    """Cut (length,) into (rows, seq_len); the last row is filled up with `value`."""
    filling = torch.full((-len(stream) % seq_len,), value)
    return torch.cat([stream, filling]).reshape(-1, seq_len)


def fit_lines(
    lines: Sequence[TokenLine], seq_len: int, long_samples: LongSamples
) -> list[TokenLine]:
    """Shorten what is longer than a row, if the user wants that.

    Args:
        lines: Sequences, in order.
        seq_len: Tokens of a row.
        long_samples: `truncate` keeps the beginning, `split` makes rows of all parts,
            `refuse` leaves them to be refused.

    Returns:
        Sequences, in order.
    """
    if long_samples == "refuse":
        return list(lines)
    return [
        _part(line, begin, begin + seq_len)
        for line in lines
        for begin in range(0, len(line.input_ids), seq_len)
        if (begin == 0 or long_samples == "split")
        and any(_mask(line)[begin : begin + seq_len])
    ]


def _mask(line: TokenLine) -> tuple[int, ...]:
    return line.attention_mask or (1,) * len(line.input_ids)


def long_note(
    lines: Sequence[TokenLine], seq_len: int, long_samples: LongSamples
) -> str:
    """Say how many sequences were shortened.

    Args:
        lines: As they were.
        seq_len: Tokens of a row.
        long_samples: What became of longer ones.

    Returns:
        One line; empty if there is nothing to say.
    """
    count = sum(len(line.input_ids) > seq_len for line in lines)
    if not count or long_samples == "refuse":
        return ""
    became = "cut off there" if long_samples == "truncate" else "split into rows"
    return f"{count} of {len(lines)} samples are longer than {seq_len} tokens: {became}"


def _part(line: TokenLine, begin: int, end: int) -> TokenLine:
    if begin == 0 and end >= len(line.input_ids):
        return line
    labels, mask = line.labels, line.attention_mask
    return TokenLine(
        origin=line.origin,
        input_ids=line.input_ids[begin:end],
        labels=None if labels is None else labels[begin:end],
        attention_mask=None if mask is None else mask[begin:end],
    )


def pad_lines(
    lines: Sequence[TokenLine], *, seq_len: int, vocab_size: int, pad_id: int
) -> Rows:
    """Make each token line a row; short ones are filled up on the right.

    Without labels, every attended token is its own label.

    Args:
        lines: Sequences, in order.
        seq_len: Tokens of a row.
        vocab_size: Tokens and labels are below it.
        pad_id: Token of filled positions.

    Returns:
        input_ids, labels and attention_mask, each (rows, seq_len) int64; the mask
        is 0 at filled positions.

    Raises:
        DataError: A line is longer than `seq_len`, or a token or label is not in
            the vocabulary.
    """
    input_ids = torch.full((len(lines), seq_len), pad_id)
    labels = torch.full((len(lines), seq_len), IGNORED)
    mask = torch.zeros((len(lines), seq_len), dtype=torch.int64)
    for row, line in enumerate(lines):
        length = len(line.input_ids)
        if length > seq_len:
            msg = (
                f"{line.origin} has {length} tokens but a sequence of this plan has "
                f"{seq_len}; give --long-samples truncate or split, or profile again "
                f"with --seq-len {length} and solve again"
            )
            raise DataError(msg)
        tokens = _as_tensor(line.input_ids)
        _check_tokens(tokens, vocab_size, line.origin)
        input_ids[row, :length] = tokens
        mask[row, :length] = 1
        if line.attention_mask is not None:
            mask[row, :length] = _as_tensor(line.attention_mask)
        if line.labels is None:
            labels[row, :length] = tokens.masked_fill(mask[row, :length] == 0, IGNORED)
        else:
            given = _as_tensor(line.labels)
            _check_tokens(given[given != IGNORED], vocab_size, line.origin, "label")
            labels[row, :length] = given
    return input_ids, labels, mask


def _as_tensor(tokens: Sequence[int]) -> Tensor:
    if isinstance(tokens, bytes):
        return torch.frombuffer(bytearray(tokens), dtype=torch.uint8).to(torch.int64)
    return torch.tensor(tokens, dtype=torch.int64)


def _check_tokens(
    tokens: Tensor, vocab_size: int, origin: str, what: str = "token"
) -> None:
    outside = tokens[(tokens < 0) | (tokens >= vocab_size)]
    if len(outside):
        msg = (
            f"{origin} has the {what} {int(outside[0])}, but the model knows 0 to "
            f"{vocab_size - 1}; tokenise with the tokenizer of this model"
        )
        raise DataError(msg)
