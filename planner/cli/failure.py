"""How a user's mistake ends: one line on stderr and an exit code.

    0    done
    1    a PlannerError: `error: ...`, no traceback
    2    bad usage, click's own
    3    an InfeasibleError: `error: ...`, nothing fits
    130  interrupted from the keyboard

Anything else is a bug and keeps its traceback.
"""

import re
from typing import Any

import click

from planner.errors import PlannerError

_INTERRUPTED = 130


class PlannerGroup(click.Group):
    """A group of commands that turns user errors into one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command.

        Args:
            ctx: The context that click made.

        Returns:
            What the command returns.

        Raises:
            click.exceptions.Exit: A user error, said on stderr, or an interruption
                from the keyboard.
        """
        try:
            return super().invoke(ctx)
        except PlannerError as error:
            click.echo(f"error: {one_line(str(error))}", err=True)
            raise click.exceptions.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            raise click.exceptions.Exit(_INTERRUPTED) from None


def one_line(text: str) -> str:
    """Join the lines of a message.

    Args:
        text: Any message.

    Returns:
        The same on one line; semicolons stand where lines ended.
    """
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return re.sub(r"([:;,.]);", r"\1", "; ".join(filter(None, lines)))
