"""JSON in and out for the three artifacts, with errors that name the field.

Decoding and validation are msgspec's: frozen dataclasses are the schema, and a
wrong value is reported with its path, as in `$.layers[3].forward_s`. Unknown
keys are ignored, so that an artifact may grow.
"""

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from planner.errors import ArtifactError

SCHEMA_VERSION = 1

NonNegativeInt = Annotated[int, msgspec.Meta(ge=0)]
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]
# The upper limit keeps infinity out; NaN fails every comparison.
NonNegativeFloat = Annotated[float, msgspec.Meta(ge=0, le=1e30)]

# The command that writes an artifact, by the name of its dataclass.
_WRITTEN_BY = {
    "ModelProfile": "planner profile MODEL",
    "Plan": "planner solve --gpus N",
    "RunRecord": "planner run PLAN",
}

T = TypeVar("T")


def from_json(text: str | bytes, kind: type[T], *, source: str) -> T:
    """Decode and validate one artifact.

    Args:
        text: The JSON text.
        kind: The frozen dataclass to decode into.
        source: Where the text came from, for the error.

    Returns:
        The artifact.

    Raises:
        ArtifactError: The text is not JSON, or a field is missing or wrong.
    """
    try:
        raw = json.loads(text, parse_float=_number)
        _check_version(raw)
        return msgspec.convert(raw, kind)
    except (ValueError, msgspec.ValidationError) as error:
        msg = f"{source} is not a valid {_title(kind)}: {error}{_next_step(kind)}"
        raise ArtifactError(msg) from error


def load(path: Path, kind: type[T]) -> T:
    """Read one artifact from a file.

    Args:
        path: The JSON file.
        kind: The frozen dataclass to decode into.

    Returns:
        The artifact.

    Raises:
        ArtifactError: The file cannot be read or is not a valid artifact.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        msg = (
            f"cannot read the {_title(kind)} {path}: {error.strerror}{_next_step(kind)}"
        )
        raise ArtifactError(msg) from error
    return from_json(text, kind, source=str(path))


def to_json(value: Any) -> str:
    """Encode one artifact as indented JSON.

    Args:
        value: A dataclass or plain JSON data.

    Returns:
        The text, ending in a newline.
    """
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def save(value: Any, path: Path) -> None:
    """Write one artifact atomically: whole or not at all.

    Args:
        value: A dataclass or plain JSON data.
        path: The file to write; folders are made.

    Raises:
        ArtifactError: The file cannot be written.
    """
    write_atomically(path, to_json(value).encode())


def nearest_existing(path: Path) -> Path:
    """Where a path is, or is going to be made.

    Args:
        path: A file or folder.

    Returns:
        The path itself, or the nearest above it that exists.
    """
    return next(x for x in (path, *path.absolute().parents) if x.exists())


def check_writable(path: Path) -> None:
    """Refuse a path that cannot be written, before the work for it is done.

    Args:
        path: The file to be written; folders would be made.

    Raises:
        ArtifactError: It is a folder, or lies below a file or in a folder that may
            not be written to.
    """
    above = nearest_existing(path.absolute().parent)
    if path.is_dir():
        reason = "it is a folder"
    elif not above.is_dir():
        reason = f"{above} is a file"
    elif not os.access(above, os.W_OK | os.X_OK):
        reason = f"{above} may not be written to"
    else:
        return
    msg = f"cannot write {path}: {reason}; name another file with -o"
    raise ArtifactError(msg)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file aside and rename it, so that no reader sees half of it.

    Args:
        path: The file to write; folders are made.
        content: All of its bytes.

    Raises:
        ArtifactError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(aside, 0o644)
            os.replace(aside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror}"
        raise ArtifactError(msg) from error


def _number(text: str) -> int | float:
    """People write 1e9 for a count: a whole float is as good as an integer."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _check_version(raw: Any) -> None:
    found = raw.get("schema_version", SCHEMA_VERSION) if isinstance(raw, dict) else None
    if found is not None and found != SCHEMA_VERSION:
        msg = f"schema_version is {found!r}, this program reads {SCHEMA_VERSION}"
        raise ValueError(msg)


def _title(kind: type) -> str:
    """`ModelProfile` reads as `model profile` in a message."""
    name = kind.__name__
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


def _next_step(kind: type) -> str:
    command = _WRITTEN_BY.get(kind.__name__)
    return f"; make one with {command}" if command else ""
