"""The first real error of a run, found among the echoes that follow it.

When one stage fails, its neighbours fail too, with "connection closed by peer".
Every process writes down what happened to it and when; the earliest failure
that is not about a lost connection is the one to show.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from planner import artifact
from planner.plan import StagePlan

_ECHOES = ("connection closed", "connection reset", "broken pipe", "gloo", "nccl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What happened to one process.

    Attributes:
        stage: Its stage.
        layers: The stage's layers, first and last.
        message: The error, one line.
        time_s: When, on the clock of the wall [s].
    """

    stage: int
    layers: str
    message: str
    time_s: float

    @staticmethod
    def of(error: BaseException, stage: StagePlan) -> "Failure":
        """Describe an error of this process.

        Args:
            error: What was raised.
            stage: The stage of this process.

        Returns:
            The failure, now.
        """
        root = error
        while root.__cause__ is not None:
            root = root.__cause__
        text = " ".join(str(root).split()) or type(root).__name__
        return Failure(
            stage=stage.index,
            layers=layer_range(stage),
            message=f"{type(root).__name__}: {text}",
            time_s=time.time(),
        )

    @property
    def sentence(self) -> str:
        """Which stage failed, with which layers, and how."""
        return f"stage {self.stage} ({self.layers}) failed: {self.message}"

    @property
    def is_echo(self) -> bool:
        """Whether it only tells that another process went away."""
        return any(word in self.message.lower() for word in _ECHOES)


def layer_range(stage: StagePlan) -> str:
    """A stage's layers as a person says them.

    Args:
        stage: The stage.

    Returns:
        `embedding to model.layers.3`, or the only layer's name.
    """
    first, last = stage.layers[0], stage.layers[-1]
    return first if first == last else f"{first} to {last}"


def save_failure(failure: Failure, work_dir: Path) -> None:
    """Leave a failure where the launcher looks for it.

    Args:
        failure: Of this process.
        work_dir: The job's folder.
    """
    artifact.save(failure, work_dir / f"failure-{failure.stage}.json")


def first_failure(work_dir: Path) -> Failure | None:
    """The failure that came first and is not an echo of another one.

    Args:
        work_dir: The job's folder.

    Returns:
        The failure, or None if no process could write one.
    """
    found = [artifact.load(p, Failure) for p in work_dir.glob("failure-*.json")]
    return min(found, key=lambda f: (f.is_echo, f.time_s), default=None)
