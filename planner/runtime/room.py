"""Whether the disk has room for what a run leaves behind.

A full disk is found out when the first checkpoint is written, hours later; so what
the run writes is added up before it begins.
"""

import shutil

from planner.artifact import nearest_existing
from planner.errors import RunError
from planner.plan import Plan
from planner.runtime.checkpoint_folder import complete_checkpoints
from planner.runtime.options import RunOptions
from planner.units import format_bytes

# At once, of a run that saves more than once: with --keep 1.
_FEWEST = 2


def check_room(plan: Plan, options: RunOptions, num_steps: int) -> None:
    """Refuse a run whose checkpoints and model have no room.

    Args:
        plan: The plan.
        options: What the user chose.
        num_steps: Optimizer steps that are still to be done.

    Raises:
        RunError: There is too little room where the run writes.
    """
    memory = [card.memory_bytes for card in plan.cards]
    model_bytes = sum(items.weights for items in memory)
    checkpoint_bytes = model_bytes + sum(items.optimizer for items in memory)
    count = _num_more(options, num_steps)
    needed_bytes = count * checkpoint_bytes + model_bytes
    free_bytes = shutil.disk_usage(nearest_existing(options.output_dir)).free
    if needed_bytes <= free_bytes:
        return
    advice = "choose another --output-dir"
    if count > _FEWEST:
        advice += " or a smaller --keep"
    msg = (
        f"{options.output_dir} has {format_bytes(free_bytes)} of disk left, and the "
        f"run writes {format_bytes(needed_bytes)}: {_checkpoints(count)} of "
        f"{format_bytes(checkpoint_bytes)} at once and the model, "
        f"{format_bytes(model_bytes)}; {advice}"
    )
    raise RunError(msg)


def _num_more(options: RunOptions, num_steps: int) -> int:
    """How many checkpoints more than now are there at once.

    One more than stay: the oldest goes when the newest is complete.
    """
    every = options.save_every or num_steps
    written = -(-num_steps // every) if every else 1
    there = len(complete_checkpoints(options.output_dir))
    return max(min(written + there, options.keep + 1) - there, 1)


def _checkpoints(count: int) -> str:
    return f"{count} checkpoints" if count > 1 else "a checkpoint"
