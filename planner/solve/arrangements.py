"""The order of a user's cards, and which of them stay out.

    as given                  rtx3060:0 rtx3090:0 rtx4090:0
    in another order          rtx3090:0 rtx3060:0 rtx4090:0     each counts once
    one left out              rtx3090:0 rtx4090:0               each subset, too

Equal cards are not told apart. Every arrangement is searched under one simple
schedule; the quickest, if it is worth it, is then searched in full, beside the one
that was given. An arrangement whose cards could not beat the best even if they shared
the work without waiting is not looked at, nor are fewer cards once one less was of no
use.

Known limitations: the first pass decides, so another arrangement may be quicker under
a schedule of the second. More than five cards of several kinds are only tried kind by
kind.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations, groupby, permutations

from planner.cards import Cluster, Device
from planner.errors import WishError
from planner.model_profile import ModelProfile
from planner.solve.candidate import Candidate
from planner.solve.own_order import least_step_s
from planner.solve.search import search
from planner.solve.setting import PLANNED, Setting
from planner.solve.settings import settings_of
from planner.solve.wishes import Wishes, batch_size
from planner.stage_links import links_in_order

# Up to so many cards are put in every order, more of them kind by kind.
_MOST_MIXED = 5
_FIRST_SCHEDULE = "1f1b"
# A smaller gain is not worth a card, or the question why [share of the step time].
_WORTH = 0.01


def arrangements(cluster: Cluster, profile: ModelProfile) -> Iterator[Cluster]:
    """Every way to use a user's cards: many before few, then those with most speed.

    Args:
        cluster: As the user gave it.
        profile: That may hold measured links.

    Yields:
        Clusters of some of the cards; first all of them in the order given. Only that
        where the user gave a link for each pair, and for processes on a CPU.
    """
    yield cluster
    given_each = cluster.links_from == "given" and len(cluster.links) > 1
    if cluster.type == "cpu" or given_each:
        return
    kinds = _kinds(cluster.devices)
    subsets = {
        subset
        for size in range(1, len(kinds) + 1)
        for subset in combinations(sorted(kinds), size)
    }

    def rank(subset: Sequence[int]) -> tuple[float, ...]:
        speed = sum(cluster.devices[kind].speed for kind in subset)
        return (-len(subset), -speed, *subset)

    for subset in sorted(subsets, key=rank):
        for order in _orders(subset):
            if order != kinds:
                yield _arranged(cluster, profile, kinds, order)


def best_arrangement(
    cluster: Cluster,
    profile: ModelProfile,
    wishes: Wishes,
    *,
    given: Candidate | None,
    deadline: float,
) -> Cluster:
    """Choose which cards are used, in which order.

    Args:
        cluster: As the user gave it.
        profile: Of the model.
        wishes: Of the user.
        given: The best plan for it; None if nothing fits.
        deadline: When to stop, on the clock of `time.monotonic` [s].

    Returns:
        The cluster under which a simple schedule that is allowed is quickest; the
        user's own where that is about as quick, nothing fits, or the user wants it so.
    """
    is_fixed = wishes.keeps_cards or (wishes.num_copies or 1) > 1
    if is_fixed or wishes.layers_per_stage is not None:
        return cluster
    batch = batch_size(profile, len(cluster), wishes)
    simple = replace(wishes, global_batch_size=batch, num_copies=1)
    if given is not None and given.setting.copies:
        given = None
    if wishes.schedule in ("auto", PLANNED):
        simple, given = replace(simple, schedule=_FIRST_SCHEDULE), None
    best, given_s = given, given.step_s if given is not None else float("inf")
    for tried in arrangements(cluster, profile):
        if tried is cluster and given is not None:
            continue
        if best is not None:
            # If one less is of no use, two less are of none.
            is_useless = len(tried) < len(best.setting.cluster) - 1
            if is_useless or time.monotonic() > deadline:
                break
        for setting in _possible(profile, tried, simple):
            if best is None or least_step_s(setting, simple) < best.step_s:
                best = search(setting, known=best, deadline=deadline).best
        if tried is cluster and best is not None:
            given_s = best.step_s
    if best is None or not is_worth_it(best.step_s, given_s):
        return cluster
    return best.setting.cluster


def is_worth_it(other_s: float, given_s: float) -> bool:
    """Whether another arrangement than the user's is to be taken.

    Args:
        other_s: Step time with it [s].
        given_s: With the cards as given; infinite if nothing fits them [s].

    Returns:
        True if it gains at least 1 %.
    """
    return other_s < given_s * (1 - _WORTH)


def _possible(
    profile: ModelProfile, cluster: Cluster, wishes: Wishes
) -> tuple[Setting, ...]:
    """The settings of one arrangement; none where the schedule cannot have it."""
    try:
        return settings_of(profile, cluster, wishes)
    except WishError:
        return ()


def _kinds(devices: Sequence[Device]) -> tuple[int, ...]:
    """The kind of each card: the position of the first that is like it."""
    alike = [(x.kind, x.memory_bytes, x.reserve_bytes, x.speed) for x in devices]
    return tuple(map(alike.index, alike))


def _orders(subset: Sequence[int]) -> Iterable[tuple[int, ...]]:
    """Orders of some cards by kind."""
    if len(subset) <= _MOST_MIXED:
        return sorted(set(permutations(subset)))
    runs = [tuple(run) for _, run in groupby(subset)]
    return (tuple(chain.from_iterable(order)) for order in permutations(runs))


def _arranged(
    cluster: Cluster, profile: ModelProfile, kinds: Sequence[int], order: Sequence[int]
) -> Cluster:
    """The cards of some kinds in a row, of each kind the first ones."""
    left = {kind: [i for i, x in enumerate(kinds) if x == kind] for kind in kinds}
    positions = tuple(left[kind].pop(0) for kind in order)
    links = cluster.links
    if cluster.links_from != "given":
        links = links_in_order(cluster, profile, positions)
    devices = tuple(cluster.devices[i] for i in positions)
    return replace(cluster, devices=devices, links=links)
