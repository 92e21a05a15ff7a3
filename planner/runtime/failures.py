"""The first real error of a run, found among the echoes that follow it.

When one process fails, its neighbours fail too, with "connection closed by peer".
Every process writes down what happened to it and when; the earliest failure
that is not about a lost connection is the one to show.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner import artifact
from planner.plan import StagePlan

_ECHOES = ("connection closed", "connection reset", "broken pipe", "gloo", "nccl")


class StageError(Exception):
    """An error of one of the stages of a device; its cause says which error.

    Args:
        stage: The stage that failed.
    """

    def __init__(self, stage: int):
        super().__init__(f"stage {stage} failed")
        self.stage = stage


@contextlib.contextmanager
def blamed_on(stage: int) -> Iterator[None]:
    """Remember in which stage an error happened.

    Args:
        stage: The stage that is at work.

    Yields:
        Nothing.

    Raises:
        StageError: Something was raised, which is its cause.
    """
    try:
        yield
    except Exception as error:
        raise StageError(stage) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What happened to one process.

    Attributes:
        device: The process: its rank, from 0.
        where: Its stages with their layers, or the only one that failed.
        message: The error, one line.
        time_s: When, on the clock of the wall [s].
    """

    device: int
    where: str
    message: str
    time_s: float

    @staticmethod
    def of(error: BaseException, device: int, stages: Sequence[StagePlan]) -> "Failure":
        """Describe an error of this process.

        Args:
            error: What was raised.
            device: Of this process.
            stages: All stages of this process.

        Returns:
            The failure, now.
        """
        root = error
        blamed: set[int] = set()
        while root.__cause__ is not None:
            if isinstance(root, StageError):
                blamed.add(root.stage)
            root = root.__cause__
        text = " ".join(str(root).split()) or type(root).__name__
        return Failure(
            device=device,
            where=describe_stages([s for s in stages if s.index in blamed] or stages),
            message=f"{type(root).__name__}: {text}",
            time_s=time.time(),
        )

    @property
    def sentence(self) -> str:
        """Which stage failed, with which layers, and how."""
        return f"{self.where} failed: {self.message}"

    @property
    def is_echo(self) -> bool:
        """Whether it only tells that another process went away."""
        return any(word in self.message.lower() for word in _ECHOES)


def describe_stages(stages: Sequence[StagePlan]) -> str:
    """Stages with their layers, as a person says them.

    Args:
        stages: Of one device, at least one.

    Returns:
        `stage 1 (head)`, or `stages 0 (embedding) and 3 (head)`.
    """
    *most, last = (f"{stage.index} ({layer_range(stage)})" for stage in stages)
    if not most:
        return f"stage {last}"
    return f"stages {', '.join(most)} and {last}"


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
    artifact.save(failure, work_dir / f"failure-{failure.device}.json")


def first_failure(work_dir: Path) -> Failure | None:
    """The failure that came first and is not an echo of another one.

    Args:
        work_dir: The job's folder.

    Returns:
        The failure, or None if no process could write one.
    """
    found = [artifact.load(p, Failure) for p in work_dir.glob("failure-*.json")]
    return min(found, key=lambda f: (f.is_echo, f.time_s), default=None)
