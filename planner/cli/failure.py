"""How a user's mistake ends: one line on stderr and an exit code.

    0    done
    1    a PlannerError: `error: ...`, no traceback
    2    bad usage, click's own
    3    an InfeasibleError: `error: ...`, nothing fits
    130  interrupted from the keyboard

Anything else is a bug and keeps its traceback.
"""

from typing import IO, Any

import click

from planner.errors import PlannerError

_INTERRUPTED = 130


class _Failure(click.ClickException):
    """A PlannerError on its way out."""

    def __init__(self, error: PlannerError):
        # One line, whatever the message looks like.
        super().__init__(" ".join(str(error).split()))
        self.exit_code = error.exit_code

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {self.message}", file=file, err=True)


class PlannerGroup(click.Group):
    """A group of commands that turns user errors into one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command.

        Args:
            ctx: The context that click made.

        Returns:
            What the command returns.

        Raises:
            click.ClickException: The command raised a PlannerError.
            click.exceptions.Exit: It was interrupted from the keyboard.
        """
        try:
            return super().invoke(ctx)
        except PlannerError as error:
            raise _Failure(error) from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            raise click.exceptions.Exit(_INTERRUPTED) from None
