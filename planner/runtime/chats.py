"""Chats and completions as tokens, of which only what is to be learned is a target.

A chat is written by the tokenizer's own chat template. What the assistant says is
found by the template's generation mask if it has one, else by difference: the tokens
up to an answer, with the prompt that asks for it, against the tokens after it.
"""

from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError

from planner.errors import DataError
from planner.runtime.packing import IGNORED, Encode
from planner.runtime.text_files import Chat, Completion, Sample, TokenLine

_MASKED = "generation %}"


def as_token_lines(
    samples: Sequence[Sample],
    *,
    tokenizer: Any | None,
    encode: Encode,
    eos_id: int | None,
) -> list[TokenLine]:
    """Bring samples to tokens.

    Args:
        samples: In order.
        tokenizer: Of the model, with its chat template; None if it has none.
        encode: Text to tokens, adding no special ones.
        eos_id: Ends a completion; None if there is no such token.

    Returns:
        One line a sample, with labels.

    Raises:
        DataError: A chat cannot be written, or has nothing to learn.
    """
    lines = []
    for sample in samples:
        if isinstance(sample, Chat):
            lines.append(_chat_line(sample, _template_of(tokenizer, sample)))
        elif isinstance(sample, Completion):
            lines.append(_completion_line(sample, encode, eos_id))
        else:
            lines.append(sample)
    return lines


def _completion_line(
    sample: Completion, encode: Encode, eos_id: int | None
) -> TokenLine:
    given, learned = [*encode(sample.prompt)], [*encode(sample.completion)]
    if eos_id is not None:
        learned.append(eos_id)
    return TokenLine(
        origin=sample.origin,
        input_ids=(*given, *learned),
        labels=(*[IGNORED] * len(given), *learned),
    )


def _template_of(tokenizer: Any | None, sample: Chat) -> Any:
    if tokenizer is None or not getattr(tokenizer, "chat_template", None):
        msg = (
            f"{sample.origin} has messages, but the model's tokenizer has no chat "
            'template; give "prompt" and "completion" as texts, or a model for chats'
        )
        raise DataError(msg)
    return tokenizer


def _chat_line(sample: Chat, tokenizer: Any) -> TokenLine:
    try:
        ids, learned = _written(sample, tokenizer)
    except TemplateError as error:
        msg = f"{sample.origin}: the chat template refuses these messages: {error}"
        raise DataError(msg) from error
    if not any(learned):
        msg = f"{sample.origin} has no answer of the assistant to learn from"
        raise DataError(msg)
    pairs = zip(ids, learned, strict=True)
    return TokenLine(
        origin=sample.origin,
        input_ids=tuple(ids),
        labels=tuple(token if is_target else IGNORED for token, is_target in pairs),
    )


def _written(sample: Chat, tokenizer: Any) -> tuple[list[int], list[bool]]:
    """Tokens of a chat, and which of them are to be learned."""
    messages = [*sample.messages]
    if _MASKED in str(tokenizer.chat_template):
        found = tokenizer.apply_chat_template(
            messages,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        whole = found["input_ids"]
        given = messages[: sample.num_given]
        num_given = _length_before(sample, tokenizer, whole, given)
        pairs = enumerate(found["assistant_masks"])
        return whole, [bool(mask) and place >= num_given for place, mask in pairs]
    whole = _ids(tokenizer, messages)
    learned = [False] * len(whole)
    for index in range(sample.num_given, len(messages)):
        if messages[index]["role"] == "assistant":
            begin = _length_before(
                sample, tokenizer, whole, messages[:index], add_generation_prompt=True
            )
            end = _length_before(sample, tokenizer, whole, messages[: index + 1])
            learned[begin:end] = [True] * (end - begin)
    return whole, learned


def _length_before(
    sample: Chat,
    tokenizer: Any,
    whole: list[int],
    messages: list[dict[str, Any]],
    **options: Any,
) -> int:
    """How many tokens of a chat its first messages take."""
    before = _ids(tokenizer, messages, **options)
    if whole[: len(before)] != before:
        msg = (
            f"{sample.origin}: the chat template writes the first {len(messages)} "
            "messages otherwise once others follow, so their tokens cannot be told; "
            "give shorter chats, or input_ids and labels"
        )
        raise DataError(msg)
    return len(before)


def _ids(tokenizer: Any, messages: list[dict[str, Any]], **options: Any) -> list[int]:
    if not messages:
        return []
    found: list[int] = tokenizer.apply_chat_template(
        messages, tokenize=True, return_dict=True, **options
    )["input_ids"]
    return found
