"""How far a profile is: what whoever waits for one is told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Progress(Protocol):
    """Is told what is being done."""

    def say(self, line: str) -> None:
        """Hear something worth keeping, such as a warning.

        Args:
            line: One line.
        """

    def step(self, what: str, done: int, total: int) -> None:
        """Hear what comes next.

        Args:
            what: The layer about to be run, and its microbatch; empty at the end.
            done: Distinct layers finished, each size counted for itself; at the
                end as many as `total`.
            total: How many there are.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Progress as lines of text, one after the other.

    Attributes:
        say: Takes one line.
    """

    say: Callable[[str], None]

    def step(self, what: str, done: int, total: int) -> None:
        """Say what comes next.

        Args:
            what: The layer about to be run, and its microbatch; empty at the end.
            done: Distinct layers finished, each size counted for itself.
            total: How many there are.
        """
        if done < total:
            self.say(f"profiling {what}")


class Steps:
    """Counts what is done for a `Progress`.

    Args:
        progress: Is told.
        total: How many steps there are.

    Attributes:
        progress: Is told.
    """

    def __init__(self, progress: Progress, total: int):
        self.progress, self._total = progress, total
        self._begun = 0

    def begin(self, what: str) -> None:
        """Begin a step; the one before is done.

        Args:
            what: The layer about to be run, and its microbatch.
        """
        self.progress.step(what, self._begun, self._total)
        self._begun += 1

    def expect(self, num_more: int) -> None:
        """Change how many steps are to come.

        Args:
            num_more: After those begun so far.
        """
        self._total = self._begun + num_more

    def end(self) -> None:
        """All steps are done."""
        self.progress.step("", self._total, self._total)
