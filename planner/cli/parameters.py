"""Option values that click does not know, and where a command writes."""

import re
from collections.abc import Callable
from pathlib import Path

import click

PATH = click.Path(path_type=Path)

as_json = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the answer as JSON, alone on stdout.",
)

attention = click.option(
    "--attention",
    metavar="auto|sdpa|eager|...",
    default="auto",
    show_default=True,
    help="Attention of transformers; auto lets it choose for the model.",
)

revision = click.option("--revision", help="Branch, tag or commit of the hub.")

trust_remote_code = click.option(
    "--trust-remote-code", is_flag=True, help="Run code of the model."
)


def auto_or_integer(
    ctx: click.Context, param: click.Parameter, value: str
) -> int | None:
    """Callback of an option that is `auto` or a whole number.

    Args:
        ctx: The command.
        param: The option.
        value: As the user wrote it.

    Returns:
        The number, or None for `auto`.

    Raises:
        click.BadParameter: It is neither.
    """
    if value == "auto":
        return None
    try:
        return int(value)
    except ValueError:
        msg = f"'{value}' is neither auto nor a whole number"
        raise click.BadParameter(msg, ctx, param) from None


def integers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Callback of an option that is a list such as `1,2,4`.

    Args:
        ctx: The command.
        param: The option.
        value: As the user wrote it.

    Returns:
        The numbers, each once, in the order they were written.

    Raises:
        click.BadParameter: An entry is no whole number from 1.
    """
    parts = value.replace(" ", "").split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        msg = f"'{value}' is not a list of whole numbers from 1, such as 1,2,4"
        raise click.BadParameter(msg, ctx, param)
    return tuple(dict.fromkeys(map(int, parts)))


def speaker(as_json: bool) -> Callable[[str], None]:
    """Where a command says things to a person.

    Args:
        as_json: Whether stdout is kept for the JSON answer.

    Returns:
        A function that prints one line or paragraph.
    """
    return lambda text: click.echo(text, err=as_json)


def say_aside(text: str) -> None:
    """Say something that is not the answer, such as progress.

    Args:
        text: One line.
    """
    click.echo(text, err=True)


def file_stem(text: str) -> str:
    """Turn any name into one that is good for a file.

    Args:
        text: Such as `org/Model-1B` or `NVIDIA GeForce RTX 3090`.

    Returns:
        Its last part with dashes in place of odd characters.
    """
    last = text.rstrip("/").split("/")[-1]
    return re.sub(r"[^A-Za-z0-9._]+", "-", last).strip("-.") or "model"
