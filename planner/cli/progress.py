"""A bar for whoever waits at a terminal, plain lines for everything else."""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from tqdm import tqdm

    from planner.measure import Progress

_BAR_FORMAT = "{percentage:3.0f} % |{bar:20}| {n_fmt}/{total_fmt} {desc}"


class Bar:
    """Progress as a bar with the layer being measured; gone at the end.

    Args:
        stream: The terminal.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._bar: tqdm | None = None

    def say(self, line: str) -> None:
        """Write a line that stays, above the bar.

        Args:
            line: Worth keeping, such as a warning.
        """
        from tqdm import tqdm

        tqdm.write(line, file=self._stream)

    def step(self, what: str, done: int, total: int) -> None:
        """Move the bar.

        Args:
            what: What comes next; empty at the end.
            done: Steps finished.
            total: Steps in all; it may change on the way.
        """
        from tqdm import tqdm

        if self._bar is None:
            self._bar = tqdm(
                file=self._stream,
                total=total,
                leave=False,
                dynamic_ncols=True,
                bar_format=_BAR_FORMAT,
            )
        self._bar.total, self._bar.n = total, done
        self._bar.set_description_str(what)  # draws it, too
        if done == total:
            self.close()

    def close(self) -> None:
        """Wipe the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


@contextlib.contextmanager
def shown_progress() -> Iterator["Progress"]:
    """Show progress on stderr, whatever goes to stdout.

    Yields:
        A bar at a terminal, wiped away at the end and before an error; else one
        line a step, as is good for a log.
    """
    from planner.measure import Lines

    if not sys.stderr.isatty():
        yield Lines(say=lambda line: click.echo(line, err=True))
        return
    bar = Bar(sys.stderr)
    try:
        yield bar
    finally:
        bar.close()
