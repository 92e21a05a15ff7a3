"""From a profile, cards and wishes to a plan."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from planner.cards import Cluster
from planner.errors import WishError
from planner.memory import stage_parameters
from planner.model_profile import ModelProfile
from planner.optimizers import automatic_optimizers
from planner.plan import Baseline, FreeCut, Plan, ProfileRef, SolverReport
from planner.solve.arrangements import best_arrangement
from planner.solve.as_plan import as_plan
from planner.solve.baselines import baselines
from planner.solve.candidate import Candidate
from planner.solve.check import check_plan
from planner.solve.copies import copy_counts
from planner.solve.ilp import TOLERANCE
from planner.solve.infeasible import infeasible
from planner.solve.moved_layers import quickest
from planner.solve.own_order import least_step_s, own_orders
from planner.solve.search import Found, search
from planner.solve.setting import (
    PLANNED,
    Setting,
    counts_of,
    cut_from_counts,
)
from planner.solve.settings import settings_of
from planner.solve.shared_cuts import with_shared_cuts
from planner.solve.wishes import Wishes, batch_size

# What settings with several stages a device may take, each and all [s]. Moves of
# single boundaries find good cuts soon; what the ILP needs to prove them is minutes.
_COUPLED_SETTING_S, _COUPLED_S = 0.5, 3.0
# What trying the cuts of some in others may take [s].
_SHARED_S = 2.5
# Until when, after its begin, a search seeks cuts for orders of our own [s].
_OWN_CUT_S = 7.0
# What the choice of cards may take [s], and what another arrangement must gain.
_ARRANGE_S, _WORTH = 5.0, 0.01
# What a lever may take when nothing fits; a plan that fits is found at once.
_LEVER_TIME_LIMIT_S = 2.0
# What may be spent on the price of a wished cut: nobody asked for the best one.
_FREE_CUT_TIME_LIMIT_S = 5.0


def best_plan(
    profile: ModelProfile,
    cluster: Cluster,
    wishes: Wishes,
    *,
    profile_ref: ProfileRef,
) -> Plan:
    """Find the plan with the smallest step time.

    Cards of different kinds may change places, and some may be left out, if that is
    quicker (`arrangements`). Of the optimizers, the first is taken with which
    something fits, not the quickest: they change what is learned.

    Args:
        profile: Of the model.
        cluster: Of the user.
        wishes: What is fixed; the rest is searched.
        profile_ref: Where the profile came from.

    Returns:
        The plan: `optimal` if no cut has a smaller simulated step time under any
        named schedule that is allowed, with its cards in their order, else `feasible`
        with the gap. An order of our own that beats them all is `feasible`: its gap
        is to what no order of any cut can beat.

    Raises:
        WishError: A wish cannot be met by any plan.
        InfeasibleError: Nothing fits the cards, with what is missing.
    """
    started = time.monotonic()
    _check_counts(profile, cluster, wishes)
    deadline = started + wishes.time_limit_s
    batch = batch_size(profile, len(cluster), wishes)
    passed_over: list[str] = []
    for name in _optimizers(profile, wishes):
        wished = replace(wishes, optimizer=name, global_batch_size=batch)
        found = _search_cards(profile, cluster, wished, deadline)
        if found.best is not None:
            break
        passed_over.append(name)
    if found.best is None:
        raise infeasible(
            profile,
            cluster,
            wishes,
            settings_of(profile, cluster, wished),
            lambda cards, other: _quick_answer(profile, cards, other),
        )
    bound_s = found.bound_s
    gap = max(1 - bound_s / found.best.step_s, 0.0) if found.best.step_s else 0.0
    proven = gap <= 2 * TOLERANCE
    report = SolverReport(
        status="optimal" if proven else "feasible",
        bound_s=found.best.step_s if proven else bound_s,
        gap=0.0 if proven else gap,
        candidates=found.num_candidates,
        solve_s=time.monotonic() - started,
        free_cut=_free_cut(profile, cluster, wishes, found.best, deadline),
    )
    plan = replace(
        as_plan(
            profile,
            found.best,
            profile_ref=profile_ref,
            report=report,
            passed_over=tuple(passed_over),
            others=found.others,
        ),
        given_cards=tuple(device.name for device in cluster.devices),
    )
    check_plan(plan, profile)
    return plan


def other_ways(
    profile: ModelProfile, cluster: Cluster, wishes: Wishes
) -> tuple[Baseline, ...]:
    """What others would do where no plan fits.

    Args:
        profile: Of the model.
        cluster: Of the user.
        wishes: What is fixed.

    Returns:
        One entry a way, at the smallest microbatch size and under the first schedule
        that the wishes allow; none for one card.

    Raises:
        WishError: A wish cannot be met by any plan.
    """
    return baselines(settings_of(profile, cluster, wishes)[0], None)


def _optimizers(profile: ModelProfile, wishes: Wishes) -> tuple[str, ...]:
    """Those to try until something fits."""
    if wishes.optimizer == "auto":
        return automatic_optimizers(profile.dtype)
    return (wishes.optimizer,)


def _search_cards(
    profile: ModelProfile, cluster: Cluster, wishes: Wishes, deadline: float
) -> Found:
    """Search the cards as given, and the best other arrangement if worth it."""
    settings = settings_of(profile, cluster, wishes)
    if not _has_room(settings[0]):
        return Found(best=None, bound_s=math.inf, num_candidates=0)
    found = _search_all(settings, wishes, deadline)
    other = best_arrangement(
        cluster,
        profile,
        wishes,
        given=found.best,
        deadline=time.monotonic() + _ARRANGE_S,
    )
    if other == cluster:
        return found
    others = settings_of(profile, other, wishes)
    return _worth_it(found, _search_all(others, wishes, deadline))


def _worth_it(given: Found, other: Found) -> Found:
    """The plan for the cards as given, unless another arrangement is worth it."""
    candidates = given.num_candidates + other.num_candidates
    if given.best is None or other.best is None:
        chosen = given if other.best is None else other
    else:
        limit_s = given.best.step_s * (1 - _WORTH)
        chosen = other if other.best.step_s < limit_s else given
    return replace(chosen, num_candidates=candidates)


def _has_room(setting: Setting) -> bool:
    """Whether the cards could hold what training needs besides activations."""
    count = stage_parameters(setting.layers, setting.profile.ties)
    needed_bytes = count * setting.optimizer.bytes_per_parameter
    return needed_bytes <= sum(x.budget_bytes for x in setting.cluster.devices)


def _search_all(
    settings: tuple[Setting, ...],
    wishes: Wishes,
    deadline: float,
    known: Candidate | None = None,
) -> Found:
    """Search one setting after the other, each against the best so far."""
    begun_s = time.monotonic()
    best, num_candidates = known, 0
    bounds_s, own = [], []
    coupled_s = _COUPLED_S
    for setting in settings:
        if setting.copies and not _is_promising(setting, best, wishes):
            continue
        begin_s = time.monotonic()
        limit_s = min(_COUPLED_SETTING_S, coupled_s)
        found = search(
            setting,
            known=best,
            deadline=min(deadline, begin_s + limit_s)
            if setting.is_coupled
            else deadline,
            layers_per_stage=wishes.layers_per_stage,
        )
        if setting.is_coupled:
            coupled_s = max(coupled_s - (time.monotonic() - begin_s), 0.0)
        best = found.best
        bounds_s.append(found.bound_s)
        num_candidates += found.num_candidates
        if found.own is not None:
            own.append(found.own)
    if not wishes.layers_per_stage:
        coupled = [setting for setting in settings if setting.is_coupled]
        until_s = min(deadline, time.monotonic() + _SHARED_S)
        cuts = [candidate.cut for candidate in own]
        shared = with_shared_cuts(coupled, cuts, deadline=until_s)
        num_candidates += len(shared)
        own += shared
        best = _better(best, shared)
    bound_s = min(bounds_s)
    if wishes.schedule in ("auto", PLANNED):
        until_s = min(deadline, begun_s + _OWN_CUT_S)
        made = own_orders(
            own, cut_deadline=-math.inf if wishes.layers_per_stage else until_s
        )
        num_candidates += len(made)
        own += made
        if wishes.schedule == PLANNED:
            best = known
        best = _better(best, made)
        if best is not None and best.setting.schedule == PLANNED:
            bound_s = min(bound_s, *(least_step_s(x, wishes) for x in settings))
    return Found(
        best=best,
        bound_s=bound_s,
        num_candidates=num_candidates,
        others=tuple(own),
    )


def _is_promising(setting: Setting, best: Candidate | None, wishes: Wishes) -> bool:
    """Whether copies have room for their states and could be quicker at all."""
    if not _has_room(setting):
        return False
    return best is None or least_step_s(setting, wishes) < best.step_s


def _better(best: Candidate | None, others: Sequence[Candidate]) -> Candidate | None:
    """The quickest of others if it is quicker than the best so far."""
    other = quickest(others)
    if other and (best is None or other.step_s < best.step_s * (1 - TOLERANCE)):
        return other
    return best


def _free_cut(
    profile: ModelProfile,
    cluster: Cluster,
    wishes: Wishes,
    wished: Candidate,
    deadline: float,
) -> FreeCut | None:
    """What the user would have without the wish for a cut, if there is one."""
    if wishes.layers_per_stage is None:
        return None
    others = replace(
        wishes, layers_per_stage=None, optimizer=wished.setting.optimizer.name
    )
    deadline = min(deadline, time.monotonic() + _FREE_CUT_TIME_LIMIT_S)
    settings = settings_of(profile, cluster, others)
    best = _search_all(settings, others, deadline, known=wished).best or wished
    return FreeCut(
        layers_per_stage=counts_of(best.cut),
        schedule=best.setting.schedule,
        microbatch_size=best.setting.microbatch_size,
        step_s=best.step_s,
    )


def _quick_answer(
    profile: ModelProfile, cluster: Cluster, wishes: Wishes
) -> Candidate | None:
    """A plan under other wishes, not proven best; None if nothing fits."""
    answers = (
        _quick_answer_with(name, profile, cluster, wishes)
        for name in _optimizers(profile, wishes)
    )
    return next((answer for answer in answers if answer is not None), None)


def _quick_answer_with(
    optimizer: str, profile: ModelProfile, cluster: Cluster, wishes: Wishes
) -> Candidate | None:
    best = None
    settings = settings_of(profile, cluster, replace(wishes, optimizer=optimizer))
    # One stage a device is found soonest; copies need no less.
    simple = [x for x in settings if x.stages_per_device == x.num_copies == 1]
    for setting in simple or settings:
        deadline = time.monotonic() + _LEVER_TIME_LIMIT_S
        best = search(
            setting,
            known=best,
            deadline=deadline,
            layers_per_stage=wishes.layers_per_stage,
        ).best
    return best


def _check_counts(profile: ModelProfile, cluster: Cluster, wishes: Wishes) -> None:
    batch = batch_size(profile, len(cluster), wishes)
    most_copies = max(copy_counts(cluster, batch, wishes))
    num_layers, num_cards = len(profile.layers), len(cluster) // most_copies
    if num_cards > num_layers:
        msg = (
            f"{num_cards} cards for {num_layers} layers: every card needs at least "
            f"one layer; use at most --gpus {num_layers}"
        )
        raise WishError(msg)
    legal = profile.legal_cuts()
    if num_cards > 1 + sum(legal):
        msg = (
            f"{num_cards} cards, but layers that belong together allow only "
            f"{1 + sum(legal)} stages; use at most --gpus {1 + sum(legal)}"
        )
        raise WishError(msg)
    counts = wishes.layers_per_stage
    if counts is None:
        return
    wish = f"--layers-per-stage {','.join(map(str, counts))}"
    if len(counts) % num_cards:
        msg = (
            f"{wish} names {len(counts)} stages for {num_cards} cards; every card "
            "gets as many as any other"
        )
        raise WishError(msg)
    if min(counts) < 1:
        msg = f"{wish}: every stage needs at least one layer"
        raise WishError(msg)
    if sum(counts) != num_layers:
        msg = (
            f"{wish} adds up to {sum(counts)} layers, but the profile has "
            f"{num_layers}, embedding and head included"
        )
        raise WishError(msg)
    for _, last in cut_from_counts(counts)[:-1]:
        if not legal[last]:
            msg = (
                f"{wish} parts '{profile.layers[last].name}' from "
                f"'{profile.layers[last + 1].name}', which belong together"
            )
            raise WishError(msg)
