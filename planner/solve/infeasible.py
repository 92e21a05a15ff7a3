"""Why nothing fits, and what would.

The least bad cut is the one whose tightest stage misses its card by least. The
levers are solved, not guessed: whatever is offered fits.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from planner.cards import Cluster
from planner.cluster import with_one_more
from planner.errors import InfeasibleError
from planner.memory import stage_parameters
from planner.model_profile import ModelProfile
from planner.optimizers import automatic_optimizers
from planner.solve.baselines import baselines
from planner.solve.candidate import Candidate, judge
from planner.solve.columns import ColumnTables
from planner.solve.setting import Setting, counts_of
from planner.solve.wishes import Wishes, batch_size
from planner.units import format_bytes, format_seconds

_MAX_EXTRA_CARDS = 8

# Solves with changed cards and wishes; None if nothing fits.
Solver = Callable[[Cluster, Wishes], Candidate | None]


def infeasible(
    profile: ModelProfile,
    cluster: Cluster,
    wishes: Wishes,
    settings: tuple[Setting, ...],
    solve: Solver,
) -> InfeasibleError:
    """Explain why nothing fits.

    Args:
        profile: Of the model.
        cluster: Of the user.
        wishes: Of the user.
        settings: All that were tried.
        solve: Tells whether something else would fit.

    Returns:
        The error to raise.
    """
    simple = [setting for setting in settings if setting.stages_per_device == 1]
    candidates = [least_bad(setting, wishes) for setting in simple or settings]
    best = min(candidates, key=lambda candidate: max(candidate.excess_bytes))
    shortfall_bytes = max(best.excess_bytes)
    device = best.excess_bytes.index(shortfall_bytes)
    levers = tuple(_levers(profile, cluster, wishes, solve))
    lines = [_headline(profile, cluster, settings[0]), _tightest(best, device)]
    if levers:
        offers = "; or ".join(
            f"{' '.join(arguments)} ({format_seconds(step_s)} a step)"
            for arguments, step_s in levers
        )
        lines.append(f"would fit: {offers}")
    else:
        lines.append(
            "neither more cards, another optimizer, recompute nor a smaller profiled "
            "microbatch would make it fit; try a shorter --seq-len or a smaller model"
        )
    ways = [entry for entry in baselines(settings[0], None) if entry.fits]
    if ways:
        named = "; ".join(f"{x.name} ({format_seconds(x.step_s)} a step)" for x in ways)
        lines.append(f"fits another way, which planner does not run: {named}")
    return InfeasibleError(
        "\n  ".join(lines),
        shortfall_bytes=shortfall_bytes,
        stage=best.setting.stages_of[device][0],
        would_fit=tuple(
            {"arguments": list(arguments), "step_s": step_s}
            for arguments, step_s in levers
        ),
    )


def least_bad(setting: Setting, wishes: Wishes) -> Candidate:
    """The cut whose tightest stage misses its card by least.

    Args:
        setting: All that is decided outside the cut.
        wishes: Of the user, for a fixed cut.

    Returns:
        The cut with the leanest recompute choices.
    """
    tables = ColumnTables(setting, wishes.layers_per_stage)
    lacking = tables.lacking_bytes()
    num_stages, count, _ = lacking.shape
    huge = np.iinfo(np.int64).max // 4
    worst = np.full((num_stages + 1, count + 1), huge)
    worst[0, 0] = np.iinfo(np.int64).min
    came_from = np.zeros((num_stages, count), dtype=np.int64)
    for stage in range(num_stages):
        reach = np.maximum(worst[stage, :count, None], lacking[stage])
        came_from[stage] = reach.argmin(axis=0)
        worst[stage + 1, 1:] = reach.min(axis=0)
    cut, last = [], count - 1
    for stage in reversed(range(num_stages)):
        first = int(came_from[stage, last])
        cut.append((first, last))
        last = first - 1
    cut.reverse()
    recompute = tuple(
        tables.leanest(stage, first, last).layers(first)
        for stage, (first, last) in enumerate(cut)
    )
    return judge(setting, tuple(cut), recompute)


def _headline(profile: ModelProfile, cluster: Cluster, setting: Setting) -> str:
    spec = setting.optimizer
    count = stage_parameters(profile.layers, profile.ties)
    needed_bytes = count * spec.bytes_per_parameter
    capacity_bytes = sum(device.memory_bytes for device in cluster.devices)
    budget_bytes = sum(device.budget_bytes for device in cluster.devices)
    cards = "1 card" if len(cluster) == 1 else f"{len(cluster)} cards"
    needs = (
        f"needs {format_bytes(needed_bytes)} for weights, gradients and {spec.title} "
        f"against {format_bytes(capacity_bytes)} on {cards}"
    )
    if needed_bytes > capacity_bytes:
        return f"nothing fits: {needs}"
    if needed_bytes > budget_bytes:
        reserve = format_bytes(capacity_bytes - budget_bytes)
        return f"nothing fits: {needs}, of which {reserve} are reserved"
    return f"no cut into {len(cluster)} stages fits, although it {needs}"


def _tightest(candidate: Candidate, device: int) -> str:
    setting = candidate.setting
    stages = setting.stages_of[device]
    card = setting.cluster.devices[device]
    sizes: Counter[str] = Counter()
    runs = []
    memory = candidate.memory()
    for stage in stages:
        sizes.update(memory[stage].items())
        first, last = candidate.cut[stage]
        names = [layer.name for layer in setting.layers[first : last + 1]]
        runs.append(names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}")
    items = ", ".join(f"{name} {format_bytes(n)}" for name, n in sizes.items() if n)
    word = "stage" if len(stages) == 1 else "stages"
    lacks = "lacks" if len(stages) == 1 else "lack"
    return (
        f"in the least bad cut {word} {' and '.join(map(str, stages))} on {card.name} "
        f"({'; '.join(runs)}) {lacks} {format_bytes(candidate.excess_bytes[device])} "
        f"of {format_bytes(card.memory_bytes)}: {items}"
    )


def _levers(
    profile: ModelProfile, cluster: Cluster, wishes: Wishes, solve: Solver
) -> Iterator[tuple[tuple[str, ...], float]]:
    """Changes that make it fit, each alone, with the step time [s]."""
    # The batch of the question, not the default of another number of cards.
    batch = batch_size(profile, len(cluster), wishes)
    wishes = dataclasses.replace(wishes, global_batch_size=batch)
    for arguments, other in _other_wishes(profile, wishes, batch):
        if found := solve(cluster, other):
            yield arguments, found.step_s
    if wishes.layers_per_stage is not None:
        if found := solve(cluster, dataclasses.replace(wishes, layers_per_stage=None)):
            counts = ",".join(map(str, counts_of(found.cut)))
            yield ("--layers-per-stage", counts), found.step_s
        return
    num_possible = 1 + sum(profile.legal_cuts())
    for _ in range(min(_MAX_EXTRA_CARDS, num_possible - len(cluster))):
        cluster = with_one_more(cluster, profile)
        if found := solve(cluster, wishes):
            yield _card_arguments(cluster, profile, batch), found.step_s
            return


def _other_wishes(
    profile: ModelProfile, wishes: Wishes, batch: int
) -> Iterator[tuple[tuple[str, ...], Wishes]]:
    """Wishes that are easier to meet on the same cards."""
    replace = dataclasses.replace
    if wishes.recompute == "none":
        yield ("--recompute", "auto"), replace(wishes, recompute="auto")
    names = automatic_optimizers(profile.dtype)
    if wishes.optimizer in names:
        for name in names[names.index(wishes.optimizer) + 1 :]:
            yield ("--optimizer", name), replace(wishes, optimizer=name)
    if wishes.schedule == "gpipe":
        yield ("--schedule", "1f1b"), replace(wishes, schedule="1f1b")
    for size in reversed(profile.microbatch_sizes):
        if size < (wishes.microbatch_size or 0) and batch % size == 0:
            arguments = ("--microbatch-size", str(size))
            yield arguments, replace(wishes, microbatch_size=size)


def _card_arguments(
    cluster: Cluster, profile: ModelProfile, batch: int
) -> tuple[str, ...]:
    """The options that describe a cluster with one more card."""
    kinds = [device.kind for device in cluster.devices]
    if set(kinds) == {profile.device.name or "gpu"}:
        arguments = ["--gpus", str(len(kinds))]
    else:
        arguments = ["--gpus", ",".join(f"{kind}:1" for kind in kinds)]
        if len(set(kinds)) == 1:
            arguments = ["--gpus", f"{kinds[0]}:{len(kinds)}"]
    for option, values in (
        ("--memory", [device.memory_bytes for device in cluster.devices]),
        ("--reserve", [device.reserve_bytes for device in cluster.devices]),
    ):
        if len(set(values)) > 1:
            arguments += [option, ",".join(map(str, values))]
    if cluster.links_from == "given" and len(cluster.links) > 1:
        arguments += ["--link", ",".join(link.name for link in cluster.links)]
    arguments += ["--global-batch-size", str(batch)]
    return tuple(arguments)
