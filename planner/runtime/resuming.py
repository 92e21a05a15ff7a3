"""Where a run goes on from, and whether it may.

The order of the data follows from its seed, its length and the batch, so the number
of steps done says where in which pass a run is. What would change that order is
refused; what changes training otherwise, such as another learning rate, is told.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from planner.errors import WishError
from planner.plan import Plan
from planner.runtime.checkpoint_folder import (
    Progress,
    complete_checkpoints,
    find_checkpoint,
    load_checkpoint_plan,
    load_progress,
    run_dir_of,
)
from planner.runtime.options import RunOptions

# Options whose change is no change of what is learned.
_INDIFFERENT = {
    "output_dir",
    "resume",
    "steps",
    "epochs",
    "init",
    "check",
    "eval_data",
    "eval_every",
    "save_every",
    "keep",
}
_OF_THE_ORDER = ("shuffle", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Where a run goes on from.

    Attributes:
        checkpoint: Its folder.
        num_done: Steps done there.
    """

    checkpoint: Path
    num_done: int


def find_beginning(
    plan: Plan,
    options: RunOptions,
    num_steps: int,
    num_sequences: int,
    say: Callable[[str], None],
) -> Beginning | None:
    """Find the checkpoint that a user wants to go on from.

    Args:
        plan: To be followed from there on.
        options: What the user chose.
        num_steps: Of the whole run, those done included.
        num_sequences: Of the data, in one pass.
        say: Takes a line that the user should see.

    Returns:
        Where the run begins; None if from the start.

    Raises:
        ArtifactError: There is no complete checkpoint.
        WishError: It is of other work, or nothing is left to do.
    """
    if options.resume is None:
        return None
    checkpoint = find_checkpoint(options.resume)
    progress = load_progress(checkpoint)
    _check_newest(checkpoint, options.output_dir)
    _check_work(checkpoint, plan, load_checkpoint_plan(checkpoint))
    _check_order(checkpoint, progress, options, num_sequences)
    if progress.step >= num_steps:
        msg = (
            f"{checkpoint} is of step {progress.step}, and the run is to have "
            f"{num_steps} in all; give --steps above {progress.step}"
        )
        raise WishError(msg)
    say(f"going on after step {progress.step} of {num_steps}, from {checkpoint}")
    for line in _changes(progress, options, num_steps):
        say(line)
    return Beginning(checkpoint=checkpoint, num_done=progress.step)


def options_of(checkpoint: Path) -> dict[str, str | int | float | bool | None]:
    """What a user need not say again when going on.

    Args:
        checkpoint: A complete one.

    Returns:
        Option name to the value of the run that wrote it.

    Raises:
        ArtifactError: It cannot be read.
    """
    own = load_progress(checkpoint).options
    return {k: x for k, x in own.items() if k not in ("output_dir", "resume", "init")}


def _check_newest(checkpoint: Path, run_dir: Path) -> None:
    """In its own run directory a run goes on at the end of what it has."""
    if run_dir_of(checkpoint) != run_dir.absolute():
        return
    newest = complete_checkpoints(run_dir)[-1]
    if newest.name != checkpoint.name:
        msg = (
            f"{run_dir} has {newest.name} after {checkpoint.name}; go on from that, or "
            "in another --output-dir"
        )
        raise WishError(msg)


def _check_work(checkpoint: Path, plan: Plan, before: Plan) -> None:
    """The sequences of a step and what is held for a parameter must be the same."""
    pairs = {
        "dtype": (before.dtype, plan.dtype),
        "optimizer": (before.optimizer.name, plan.optimizer.name),
        "tokens of a sequence": (before.seq_len, plan.seq_len),
        "sequences of a step": (before.global_batch_size, plan.global_batch_size),
        "architecture": (before.model.architecture, plan.model.architecture),
    }
    others = [
        f"{what}: {there} there, {here} in the plan"
        for what, (there, here) in pairs.items()
        if there != here
    ]
    if others:
        msg = (
            f"{checkpoint} is of other work than the plan ({'; '.join(others)}); solve "
            "for the same, or train anew in another --output-dir"
        )
        raise WishError(msg)


def _check_order(
    checkpoint: Path, progress: Progress, options: RunOptions, num_sequences: int
) -> None:
    if progress.num_sequences != num_sequences:
        msg = (
            f"the data has {num_sequences} sequences, and had {progress.num_sequences} "
            f"when {checkpoint} was written; go on with the same --data"
        )
        raise WishError(msg)
    own = options.as_record()
    for name in _OF_THE_ORDER:
        before = progress.options.get(name, own[name])
        if before != own[name]:
            msg = (
                f"{name} is {own[name]}, and was {before} when {checkpoint} was "
                "written: sequences would come twice or never; leave it as it was"
            )
            raise WishError(msg)


def _changes(progress: Progress, options: RunOptions, num_steps: int) -> list[str]:
    own = options.as_record()
    lines = []
    if options.lr_schedule != "constant" and num_steps != progress.num_steps:
        lines.append(
            f"the learning rate ends after {num_steps} steps from here on, and was to "
            f"end after {progress.num_steps}"
        )
    return lines + [
        f"--{name.replace('_', '-')} is {own[name]} from here on, and was {before}"
        for name, before in progress.options.items()
        if name in own and name not in _INDIFFERENT and before != own[name]
    ]
