"""The third artifact: what a run did and what was measured.

A run directory holds `run.json` (this record), `metrics.jsonl` (one
`StepMetrics` a line), `checkpoints/`, `model/` and `trace.json`.
"""

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from planner import artifact
from planner.artifact import NonNegativeFloat, NonNegativeInt, PositiveInt
from planner.errors import ArtifactError
from planner.plan import Plan

# The logarithm of the largest number that there is.
_LARGEST_LOG = 709.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSpan:
    """When one action of the measured step ran.

    Attributes:
        action: Such as `0F0`.
        start_s: Since the first F of that step on any stage [s].
        end_s: Since the first F of that step on any stage [s].
    """

    action: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStage:
    """What one stage needed and took.

    Stages that share a device have its memory and its optimizer time in common: both
    are the device's.

    Attributes:
        peak_bytes: Peak of live tensor bytes after the first step [bytes].
        reserved_bytes: On CUDA, peak that the allocator held [bytes].
        host_peak_bytes: Peak resident memory of its process [bytes].
        busy_s: Time in the stage's actions of the measured step [s].
        bubble_fraction: 1 - busy_s / makespan.
        forward_s: Median F of one microbatch [s].
        backward_s: Median B of one microbatch; where only I and W ran, the sum of
            theirs [s].
        input_grad_s: Median I of one microbatch; 0 if none ran [s].
        weight_grad_s: Median W of one microbatch; 0 if none ran [s].
        optimizer_s: Median time of clipping and optimizer [s].
        spans: Every action of the measured step.
    """

    peak_bytes: NonNegativeInt = 0
    reserved_bytes: NonNegativeInt = 0
    host_peak_bytes: NonNegativeInt = 0
    busy_s: NonNegativeFloat = 0.0
    bubble_fraction: float = 0.0
    forward_s: NonNegativeFloat = 0.0
    backward_s: NonNegativeFloat = 0.0
    input_grad_s: NonNegativeFloat = 0.0
    weight_grad_s: NonNegativeFloat = 0.0
    optimizer_s: NonNegativeFloat = 0.0
    spans: tuple[MeasuredSpan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDevice:
    """What one device needed and took for all of its stages.

    Attributes:
        device: Name of the card, such as `rtx3090:0`.
        stages: Indices of its stages, ascending.
        peak_bytes: Peak of live tensor bytes after the first step [bytes].
        reserved_bytes: On CUDA, peak that the allocator held [bytes].
        host_peak_bytes: Peak resident memory of its process [bytes].
        busy_s: Time in actions of the measured step [s].
        bubble_fraction: 1 - busy_s / makespan.
        optimizer_s: Median time of clipping and optimizer [s].
    """

    device: str
    stages: tuple[NonNegativeInt, ...]
    peak_bytes: NonNegativeInt = 0
    reserved_bytes: NonNegativeInt = 0
    host_peak_bytes: NonNegativeInt = 0
    busy_s: NonNegativeFloat = 0.0
    bubble_fraction: float = 0.0
    optimizer_s: NonNegativeFloat = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured over the whole run.

    Attributes:
        step_s: Median step time without the first two steps, which allocate and
            watch the memory; of a shorter run, of all its steps [s].
        tokens_per_s: Tokens of the global batch per step time [1/s].
        stages: One entry a stage.
        devices: One entry a device, in the order of the schedule's rows; absent in
            records written before a device could have several stages.
    """

    step_s: NonNegativeFloat
    tokens_per_s: NonNegativeFloat
    stages: tuple[MeasuredStage, ...]
    devices: tuple[MeasuredDevice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What a run did.

    Attributes:
        plan: The plan it followed.
        status: `running` until the last step is saved, then `finished`; `stopped` if
            it was asked to and saved.
        options: Learning rate, seed, data and the other options of the run.
        measured: Absent while it runs.
        versions: Of planner, torch and transformers.
        created: ISO date and time.
    """

    schema_version: int = artifact.SCHEMA_VERSION
    created: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    plan: Plan
    status: Literal["running", "stopped", "finished"] = "running"
    options: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    measured: Measured | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """One line of `metrics.jsonl`.

    Attributes:
        step: From 1.
        loss: Mean over the step's target tokens.
        grad_norm: Global norm before clipping.
        lr: Learning rate of the step.
        num_tokens: Target tokens of the step.
        step_s: Step time [s].
        tokens_per_s: Tokens of the step's sequences per step time [1/s].
        eval_loss: Mean over the target tokens of the evaluation after the step,
            without what a model adds to its loss; None if there was none.
    """

    step: PositiveInt
    loss: float
    grad_norm: float
    lr: float
    num_tokens: NonNegativeInt
    step_s: NonNegativeFloat
    tokens_per_s: NonNegativeFloat
    eval_loss: float | None = None

    @property
    def eval_perplexity(self) -> float | None:
        """Of the evaluation; infinite where that is too large a number."""
        if self.eval_loss is None:
            return None
        return math.exp(self.eval_loss) if self.eval_loss < _LARGEST_LOG else math.inf


def check_run_dir(run_dir: Path, *, resumed: bool = False) -> None:
    """Make sure that a run may write here; nothing is made yet.

    Args:
        run_dir: The run directory.
        resumed: Whether the run goes on from one that may be this very one.

    Raises:
        ArtifactError: It holds another run or other files, is a file, or cannot be
            made.
    """
    is_used = run_dir.is_dir() and any(run_dir.iterdir())
    if is_used and not (resumed and (run_dir / "run.json").is_file()):
        msg = (
            f"{run_dir} holds another run; choose another --output-dir, or go on with "
            "--resume"
        )
        raise ArtifactError(msg)
    if run_dir.exists() and not run_dir.is_dir():
        msg = f"{run_dir} is a file; choose another --output-dir"
        raise ArtifactError(msg)
    lies_in = artifact.nearest_existing(run_dir)
    if not lies_in.is_dir() or not os.access(lies_in, os.W_OK | os.X_OK):
        why = "cannot be written" if lies_in.is_dir() else "is a file"
        msg = f"{run_dir} cannot be made: {lies_in} {why}; choose another --output-dir"
        raise ArtifactError(msg)


def make_run_dir(run_dir: Path) -> None:
    """Make the folder of a run, in which nothing is yet.

    Args:
        run_dir: The run directory; an empty one stays.

    Raises:
        ArtifactError: It cannot be made.
    """
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{run_dir} cannot be made: {error.strerror}; choose another --output-dir"
        raise ArtifactError(msg) from error


def load_run(run_dir: Path) -> RunRecord:
    """Read the record of a run.

    Args:
        run_dir: The run directory.

    Returns:
        The record.

    Raises:
        ArtifactError: It cannot be read or a field is wrong (named).
    """
    return artifact.load(run_dir / "run.json", RunRecord)


def load_metrics(run_dir: Path) -> tuple[StepMetrics, ...]:
    """Read the metrics of a run, also of one that ended in mid-line.

    Args:
        run_dir: The run directory.

    Returns:
        One entry a step; a torn last line is left out.

    Raises:
        ArtifactError: A line before the last is not valid.
    """
    path = run_dir / "metrics.jsonl"
    if not path.exists():
        return ()
    *lines, torn = path.read_text(encoding="utf-8").split("\n")
    if torn:
        try:
            json.loads(torn)
            lines.append(torn)
        except ValueError:
            pass
    return tuple(
        artifact.from_json(line, StepMetrics, source=f"{path} line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    )
