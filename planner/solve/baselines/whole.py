"""The model as a whole: on one card alone, or a copy of it on every card.

Both try every profiled microbatch size that divides the batch, with recompute all or
nothing, and take the quickest that fits; if none does, the one that lacks least.
"""

import dataclasses

from planner.cards import Device, Link
from planner.memory import stage_parameters
from planner.plan import Baseline
from planner.simulate import all_reduce_s
from planner.solve.baselines.pipelines import (
    as_baseline,
    cards_of,
    lacking_bytes,
    room,
    scored,
)
from planner.solve.candidate import Candidate
from planner.solve.setting import Setting
from planner.units import format_seconds


def single_card(setting: Setting) -> Baseline:
    """Everything on that one of the cards which is best for it.

    Args:
        setting: Of the plan.

    Returns:
        Its entry.
    """
    best = min(
        (
            scored_alone(setting, place, size)
            for place in _unlike_cards(setting)
            for size in sizes(setting)
        ),
        key=lambda candidate: (lacking_bytes(candidate), candidate.step_s),
    )
    (device,) = best.setting.cluster.devices
    fact = f"all of it on {device.name}" if best.fits else room(best)
    entry = as_baseline(best, "single card", "", fact)
    return dataclasses.replace(entry, schedule="")


def copies(setting: Setting) -> Baseline:
    """A copy of the model on every card, and a share of the batch for each.

    Source: Li et al., "PyTorch Distributed: Experiences on accelerating data parallel
    training". Gradients are summed over a ring once a step, while the last microbatch
    is in B as far as that is long enough; all wait for the slowest card.

    Args:
        setting: Of the plan.

    Returns:
        Its entry.
    """
    found = [_copies(setting, size) for size in sizes(setting)]
    return min(found, key=lambda entry: (entry.missing_bytes, entry.step_s))


def sizes(setting: Setting) -> tuple[int, ...]:
    """The microbatch sizes to try where cards do not have to share them.

    Args:
        setting: Of the plan.

    Returns:
        Those that were profiled and divide the batch of the plan.
    """
    batch = setting.num_microbatches * setting.microbatch_size
    profiled = setting.profile.microbatch_sizes
    return tuple(size for size in profiled if batch % size == 0)


def num_rounds(setting: Setting, microbatch_size: int) -> int:
    """How many microbatches the busiest card has if all cards share the batch.

    Args:
        setting: Of the plan.
        microbatch_size: Sequences of one microbatch; divides the batch.

    Returns:
        The number, rounded up.
    """
    batch = setting.num_microbatches * setting.microbatch_size
    return -(-(batch // microbatch_size) // len(setting.cluster))


def slowest_link(setting: Setting) -> Link:
    """The link that a ring waits for.

    Args:
        setting: Of the plan.

    Returns:
        The one that takes longest for a mebibyte.
    """
    return max(setting.cluster.links, key=lambda link: link.transfer_s(2**20))


def scored_alone(
    setting: Setting,
    card: int,
    microbatch_size: int,
    num_microbatches: int | None = None,
) -> Candidate:
    """One card that works through microbatches by itself.

    Args:
        setting: Of the plan.
        card: Position of the card.
        microbatch_size: Sequences of one microbatch; divides the batch.
        num_microbatches: How many; None for the whole batch.

    Returns:
        Its times and memory.
    """
    batch = setting.num_microbatches * setting.microbatch_size
    own = dataclasses.replace(
        setting,
        cluster=cards_of(setting.cluster, (card,)),
        schedule="1f1b",
        stages_per_device=1,
        placement="loop",
        microbatch_size=microbatch_size,
        num_microbatches=num_microbatches or batch // microbatch_size,
        order=None,
    )
    return scored(own, ((0, len(own.layers) - 1),))


def _copies(setting: Setting, size: int) -> Baseline:
    rounds = num_rounds(setting, size)
    each = [
        scored_alone(setting, card, size, rounds) for card in _unlike_cards(setting)
    ]
    slowest = max(each, key=lambda candidate: candidate.step_s)
    tightest = max(each, key=lambda candidate: max(candidate.excess_bytes))
    parameters = stage_parameters(setting.layers, setting.profile.ties)
    sum_s = all_reduce_s(
        parameters * setting.optimizer.gradient_bytes,
        len(setting.cluster),
        slowest_link(setting),
    )
    waits_s = max(sum_s - slowest.times[0].backward_s, 0.0)
    if tightest.fits:
        fact = f"gradients are summed once a step in {format_seconds(sum_s)}"
    else:
        fact = room(tightest)
    entry = as_baseline(tightest, "copy on every card", "DDP", fact)
    return dataclasses.replace(
        entry, layers_per_stage=(), schedule="", step_s=slowest.step_s + waits_s
    )


def _unlike_cards(setting: Setting) -> list[int]:
    """The first card of each kind, so that equal ones are judged once."""
    first: dict[Device, int] = {}
    for place, device in enumerate(setting.cluster.devices):
        first.setdefault(dataclasses.replace(device, name=""), place)
    return list(first.values())
