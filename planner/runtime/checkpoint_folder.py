"""Checkpoints as folders: which are there, which is the newest, which may go.

    checkpoints/
      step-200/            complete: it has a `progress.json`, written last
      step-400/
      .step-600.partial/   being written, or left by a run that died while saving

A checkpoint holds safetensors files and JSON, nothing that is unpickled, so one of
unknown origin can be opened.
"""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from planner import artifact
from planner.artifact import NonNegativeInt, PositiveInt
from planner.errors import ArtifactError
from planner.plan import Plan, load_plan

FOLDER = "checkpoints"
_PROGRESS = "progress.json"
_PLAN = "plan.json"
_PREFIX = "step-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run was when a checkpoint was written.

    Attributes:
        step: Optimizer steps done.
        num_steps: That the run was to have in all.
        epoch: Passes over the data completed.
        sequence: Sequences of the next pass that were trained on.
        num_sequences: Of the data, in one pass.
        options: Of the run: learning rate, schedule, seed, data and the others.
        versions: Of planner, torch and transformers.
    """

    step: PositiveInt
    num_steps: NonNegativeInt = 0
    epoch: NonNegativeInt = 0
    sequence: NonNegativeInt = 0
    num_sequences: NonNegativeInt = 0
    options: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def load_progress(checkpoint: Path) -> Progress:
    """Read how far a checkpoint is.

    Args:
        checkpoint: A complete one.

    Returns:
        Its progress.

    Raises:
        ArtifactError: It cannot be read.
    """
    return artifact.load(checkpoint / _PROGRESS, Progress)


def load_checkpoint_plan(checkpoint: Path) -> Plan:
    """Read the plan that a checkpoint was trained by.

    Args:
        checkpoint: A complete one.

    Returns:
        The plan.

    Raises:
        ArtifactError: It cannot be read.
    """
    return load_plan(checkpoint / _PLAN)


def complete_checkpoints(run_dir: Path) -> list[Path]:
    """The checkpoints of a run that were written to their end.

    Args:
        run_dir: The run directory.

    Returns:
        Their folders, the oldest first.
    """
    found = {}
    for path in (run_dir / FOLDER).glob(f"{_PREFIX}*"):
        number = path.name.removeprefix(_PREFIX)
        if number.isdecimal() and (path / _PROGRESS).is_file():
            found[int(number)] = path
    return [found[step] for step in sorted(found)]


def find_checkpoint(path: Path) -> Path:
    """A checkpoint that a user names, by itself or by its run directory.

    Args:
        path: A checkpoint, or a run directory, which stands for its newest one.

    Returns:
        The folder of a complete checkpoint.

    Raises:
        ArtifactError: There is none.
    """
    if (path / _PROGRESS).is_file():
        return path
    if complete := complete_checkpoints(path):
        return complete[-1]
    what = "has no complete checkpoint" if path.is_dir() else "does not exist"
    msg = f"{path} {what}; name a run directory or a folder {FOLDER}/{_PREFIX}N of one"
    raise ArtifactError(msg)


def run_dir_of(checkpoint: Path) -> Path | None:
    """The run directory that a checkpoint lies in.

    Args:
        checkpoint: Its folder.

    Returns:
        The directory, or None if it lies elsewhere.
    """
    folder = checkpoint.absolute().parent
    return folder.parent if folder.name == FOLDER else None


def how_to_go_on(run_dir: Path, plan: Plan) -> str:
    """What a user types to go on with a run.

    Args:
        run_dir: The run directory, with a complete checkpoint.
        plan: Its plan.

    Returns:
        Half a sentence.
    """
    newest = complete_checkpoints(run_dir)[-1]
    flag = " --trust-remote-code" if plan.trust_remote_code else ""
    return f"saved in {newest}; go on with: planner run --resume {run_dir}{flag}"


def partial_checkpoint(run_dir: Path, step: int) -> Path:
    """Where a checkpoint is written aside.

    Args:
        run_dir: The run directory.
        step: Steps done.

    Returns:
        The folder, there or not.
    """
    return run_dir / FOLDER / f".{_PREFIX}{step}.partial"


def begin_checkpoint(aside: Path) -> None:
    """Make the folder in which a checkpoint is written aside.

    What runs that died while saving left behind goes.

    Args:
        aside: Of `partial_checkpoint`.
    """
    for left in aside.parent.glob(f".{_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    aside.mkdir(parents=True)


def finish_checkpoint(aside: Path, plan: Plan, progress: Progress, keep: int) -> Path:
    """Make a checkpoint count, all of its tensors written, and let old ones go.

    Args:
        aside: That `begin_checkpoint` made.
        plan: The plan of the run.
        progress: How far it is.
        keep: Complete checkpoints to keep, this one included.

    Returns:
        Its folder.
    """
    final = aside.with_name(f"{_PREFIX}{progress.step}")
    artifact.save(plan, aside / _PLAN)
    artifact.save(progress, aside / _PROGRESS)
    for path in (aside / _PLAN, aside / _PROGRESS, aside):
        _to_disk(path)
    if final.exists():
        _remove(final)
    aside.rename(final)
    _to_disk(final.parent)
    for old in complete_checkpoints(final.parent.parent)[:-keep]:
        _remove(old)
    return final


def _remove(checkpoint: Path) -> None:
    """Out of the way first, so that half a checkpoint never looks whole."""
    aside = checkpoint.with_name(f".{checkpoint.name}.removed")
    checkpoint.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _to_disk(path: Path) -> None:
    """Wait until a file, or the entries of a folder, would survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
