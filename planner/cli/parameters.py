"""Option values that click does not know, and where a command writes."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

PATH = click.Path(path_type=Path)

as_json = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the answer as JSON, alone on stdout.",
)


class AutoOrInteger(click.ParamType):
    """`auto`, which becomes None, or a whole number."""

    name = "auto|N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """Read the value.

        Args:
            value: As the user wrote it.
            param: The option.
            ctx: The command.

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
            self.fail(f"'{value}' is neither auto nor a whole number", param, ctx)


class Integers(click.ParamType):
    """Whole numbers from 1, joined by commas."""

    name = "N[,N...]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Read the value.

        Args:
            value: As the user wrote it, or a tuple already.
            param: The option.
            ctx: The command.

        Returns:
            The numbers, in the order they were written.

        Raises:
            click.BadParameter: An entry is no whole number from 1.
        """
        if isinstance(value, tuple):
            return value
        parts = str(value).replace(" ", "").split(",")
        if not all(part.isdecimal() and int(part) for part in parts):
            self.fail(f"'{value}' is not a list such as 1,2,4", param, ctx)
        return tuple(map(int, parts))


def none_if_auto(ctx: click.Context, param: click.Parameter, value: str) -> str | None:
    """Callback of a choice in which `auto` leaves the decision to the solver.

    Args:
        ctx: The command.
        param: The option.
        value: What was chosen.

    Returns:
        The choice, or None for `auto`.
    """
    return None if value == "auto" else value


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
