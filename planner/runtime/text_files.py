"""Reads what a user trains on: text, chats, or lines that are already tokens.

A source is one of

    builtin         the sources of this Python's standard library, up to 2 MB
    FILE            UTF-8 text, one document
    FILE.jsonl      one JSON object a line: {"text": ...}, or
                    {"messages": [{"role": ..., "content": ...}, ...]}, or
                    {"prompt": ..., "completion": ...}, texts or lists of messages, or
                    {"input_ids": [...], "labels": [...], "attention_mask": [...]}
                    of which the last two may be absent
    FOLDER          all of its files in sorted order, hidden ones left out

Nothing is skipped in silence: what cannot be read is an error that names the
file and the line.

Known limitations: the whole source is read into memory.
"""

import json
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import DataError

BUILTIN = "builtin"
BUILTIN_LIMIT_BYTES = 2_000_000
_JSON_LINES = {".jsonl", ".ndjson", ".json"}
_TOO_LARGE = 2**63
_COLUMNS = '"text", "messages", "prompt" and "completion", or "input_ids"'
_NEXT_STEP = "give --data a text file, a folder of them, a .jsonl file or builtin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One document, not yet tokens.

    Attributes:
        origin: File and line, for errors.
        text: What it says.
    """

    origin: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLine:
    """One sequence that came as tokens.

    Attributes:
        origin: File and line, for errors.
        input_ids: Tokens; shape (length,).
        labels: As long, or absent; -100 is not a target.
        attention_mask: As long, 0 or 1, or absent.
    """

    origin: str
    input_ids: tuple[int, ...]
    labels: tuple[int, ...] | None = None
    attention_mask: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        length = len(self.input_ids)
        if not length:
            msg = f"{self.origin}: input_ids is empty; leave the line out"
            raise DataError(msg)
        for name in ("labels", "attention_mask"):
            values = getattr(self, name)
            if values is not None and len(values) != length:
                msg = (
                    f"{self.origin}: {name} has {len(values)} entries but input_ids "
                    f"has {length}; make them equally long"
                )
                raise DataError(msg)
        if self.attention_mask and set(self.attention_mask) - {0, 1}:
            msg = f"{self.origin}: attention_mask has entries other than 0 and 1"
            raise DataError(msg)
        if self.attention_mask and not any(self.attention_mask):
            msg = f"{self.origin}: attention_mask is 0 everywhere; leave the line out"
            raise DataError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """One conversation, of which the assistant's part is learned.

    Attributes:
        origin: File and line, for errors.
        messages: Each with a role and a content, as a chat template takes them.
        num_given: How many of the first ones are not learned, whoever says them.
    """

    origin: str
    messages: tuple[dict[str, Any], ...]
    num_given: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A text that is given, and one that is learned.

    Attributes:
        origin: File and line, for errors.
        prompt: Given.
        completion: Learned.
    """

    origin: str
    prompt: str
    completion: str


# A row of its own each.
Sample = TokenLine | Chat | Completion
_CALLED = {TokenLine: "input_ids", Chat: "messages", Completion: "completions"}


def read_source(source: str) -> tuple[Text, ...] | tuple[Sample, ...]:
    """Read everything a source holds.

    Args:
        source: `builtin`, or a path to a file or a folder.

    Returns:
        Documents, or samples, in order; at least one.

    Raises:
        DataError: It is missing, empty, not UTF-8, malformed, or of both kinds.
    """
    if source == BUILTIN:
        return tuple(_builtin_texts())
    entries = [entry for path in _files(Path(source)) for entry in _read_file(path)]
    texts = tuple(entry for entry in entries if isinstance(entry, Text))
    lines = tuple(entry for entry in entries if not isinstance(entry, Text))
    if texts and lines:
        msg = (
            f"{source} mixes text ({texts[0].origin}) and {_CALLED[type(lines[0])]} "
            f"({lines[0].origin}); train on one of the two"
        )
        raise DataError(msg)
    if not texts and not lines:
        msg = f"{source} is empty; {_NEXT_STEP}"
        raise DataError(msg)
    return texts or lines


def _builtin_texts() -> Iterator[Text]:
    """Whole modules of the standard library, sorted, as many as fit the limit."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    room_bytes = BUILTIN_LIMIT_BYTES
    sources = sorted(folder.glob("*.py"))
    if not sources:
        msg = f"this Python has no sources in {folder}; name a text file with --data"
        raise DataError(msg)
    for path in sources:
        room_bytes -= path.stat().st_size
        if room_bytes < 0:
            return
        yield from _read_text(path)


def _files(path: Path) -> list[Path]:
    """The file itself, or all visible files below a folder."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        msg = f"there is no data at {path}; {_NEXT_STEP}"
        raise DataError(msg)
    found = [
        file
        for file in sorted(path.rglob("*"))
        if file.is_file() and not _is_hidden(file.relative_to(path))
    ]
    if not found:
        msg = f"the folder {path} holds no text; {_NEXT_STEP}"
        raise DataError(msg)
    return found


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def _read_file(path: Path) -> Iterator[Text | Sample]:
    if path.suffix.lower() in _JSON_LINES:
        return _read_json_lines(path)
    return _read_text(path)


def _read_text(path: Path) -> Iterator[Text]:
    """One document, or none when there is nothing but white space."""
    text = _decode(path)
    if text.strip():
        yield Text(origin=str(path), text=text)


def _decode(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        msg = (
            f"{path} is not UTF-8 text: byte {error.object[error.start]:#04x} at "
            f"offset {error.start}; convert it to UTF-8 or leave it out"
        )
        raise DataError(msg) from error
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}; {_NEXT_STEP}"
        raise DataError(msg) from error


def _read_json_lines(path: Path) -> Iterator[Text | Sample]:
    # Not splitlines(): a JSON text may hold other line separators, as U+2028.
    for number, line in enumerate(_decode(path).split("\n"), start=1):
        if line.strip():
            entry = _read_line(line, origin=f"{path} line {number}")
            if not isinstance(entry, Text) or entry.text.strip():
                yield entry


def _read_line(line: str, *, origin: str) -> Text | Sample:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        msg = f"{origin} is not valid JSON ({error}); write one object a line"
        raise DataError(msg) from error
    if not isinstance(raw, dict):
        msg = f"{origin} is no object; it needs {_COLUMNS}"
        raise DataError(msg)
    if "input_ids" in raw:
        return TokenLine(
            origin=origin,
            input_ids=_integers(raw["input_ids"], "input_ids", origin),
            labels=_optional_integers(raw, "labels", origin),
            attention_mask=_optional_integers(raw, "attention_mask", origin),
        )
    if "messages" in raw:
        return Chat(origin=origin, messages=_messages(raw, "messages", origin))
    if "prompt" in raw and "completion" in raw:
        return _completion(raw, origin)
    if isinstance(raw.get("text"), str):
        return Text(origin=origin, text=raw["text"])
    msg = f"{origin} needs {_COLUMNS}; it has {', '.join(raw) or 'nothing'}"
    raise DataError(msg)


def _completion(raw: dict[str, Any], origin: str) -> Chat | Completion:
    prompt, completion = raw["prompt"], raw["completion"]
    if isinstance(prompt, str) and isinstance(completion, str):
        if not completion:
            msg = f"{origin}: completion is empty, so nothing is to be learned"
            raise DataError(msg)
        return Completion(origin=origin, prompt=prompt, completion=completion)
    given = _messages(raw, "prompt", origin)
    learned = _messages(raw, "completion", origin)
    return Chat(origin=origin, messages=given + learned, num_given=len(given))


def _messages(
    raw: dict[str, Any], name: str, origin: str
) -> tuple[dict[str, Any], ...]:
    found = raw[name]
    is_list = isinstance(found, list) and found
    if not is_list or not all(isinstance(x, dict) and "role" in x for x in found):
        msg = f"{origin}: {name} is not a list of messages, each with a role"
        raise DataError(msg)
    return tuple(found)


def _optional_integers(
    raw: dict[str, Any], name: str, origin: str
) -> tuple[int, ...] | None:
    return None if raw.get(name) is None else _integers(raw[name], name, origin)


def _integers(value: Any, name: str, origin: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(map(_is_token, value)):
        msg = f"{origin}: {name} is not a list of whole numbers"
        raise DataError(msg)
    return tuple(value)


def _is_token(value: Any) -> bool:
    # type() and not isinstance(): true and false are no tokens.
    return type(value) is int and abs(value) < _TOO_LARGE
