"""The splits people use, run as they run them.

A split gets the schedule and the microbatches of the plan it stands beside; beside
an order of our own, which nobody else has, 1F1B with one stage a card. Recompute is
all or nothing, as it is used: none where that fits, else all where the user allows.
Where neither fits, the one that lacks less is told.

Taking turns is what a model does whose layers were only placed on several cards: a
microbatch goes through all of them and back before the next one comes.

    card 0  F0          B0 F1          B1
    card 1     F0    B0       F1    B1
    card 2        F0 B0          F1 B1
"""

import dataclasses
from collections import Counter
from itertools import pairwise

from planner.cards import Cluster
from planner.plan import CLOSE, Baseline
from planner.schedule.actions import Action, Actions
from planner.solve.baselines import rules
from planner.solve.candidate import Candidate, judge
from planner.solve.setting import Cut, Setting
from planner.units import format_bytes, format_seconds

TURNS = "in turn"
# Of them the memory follows: the second meets the gradients of the first.
_MICROBATCHES_SEEN = 2

_RULES = (
    ("even layers", "NeMo AutoModel", rules.even_layers),
    ("less at the ends", "torchtitan", rules.less_at_the_ends),
    ("equal parameters", "DeepSpeed", rules.equal_parameters),
    ("equal time", "torchgpipe", rules.equal_time),
    ("least bottleneck", "PipeDream", rules.least_bottleneck),
)


def splits(setting: Setting, best: Candidate | None) -> list[Baseline]:
    """The splits that people use, under one schedule.

    Args:
        setting: Of the plan, or of what was tried if nothing fits.
        best: The plan; None if nothing fits.

    Returns:
        One entry a rule.
    """
    setting = usual_setting(setting)
    found = []
    for name, used_by, rule in _RULES:
        candidate = scored(setting, rule(setting))
        fact = _busy_fact(candidate, best) if candidate.fits else room(candidate)
        found.append(as_baseline(candidate, name, used_by, fact))
    return found


def turns(setting: Setting) -> list[Baseline]:
    """Layers placed on cards without a pipeline.

    Args:
        setting: Of the plan.

    Returns:
        An even placement, and that of accelerate.
    """
    simple = usual_setting(setting, always=True)
    all_cards = tuple(range(len(setting.cluster)))
    mapped = rules.device_map(simple)
    ways = (
        ("even layers in turn", "by hand", all_cards, None),
        ("device map in turn", "accelerate", tuple(mapped), tuple(mapped.values())),
    )
    found = []
    for name, used_by, cards, cut in ways:
        own = in_turn(simple, cards)
        candidate = scored(own, cut or rules.even_layers(own))
        entry = as_baseline(
            candidate, name, used_by, _turn_fact(candidate, len(all_cards))
        )
        step_s = candidate.step_s + (
            candidate.timeline.makespan_s
            * (setting.num_microbatches / own.num_microbatches - 1)
        )
        found.append(dataclasses.replace(entry, step_s=step_s))
    return found


def usual_setting(setting: Setting, *, always: bool = False) -> Setting:
    """A schedule that others have, too.

    Args:
        setting: Of the plan.
        always: Whether its schedule is left even if it has a name.

    Returns:
        The same, or 1F1B with one stage a card.
    """
    if setting.order is None and not always:
        return setting
    return dataclasses.replace(
        setting, schedule="1f1b", stages_per_device=1, placement="loop", order=None
    )


def scored(setting: Setting, cut: Cut) -> Candidate:
    """Simulate a split with recompute all or nothing.

    Args:
        setting: All that is decided outside the cut.
        cut: First and last layer of every stage.

    Returns:
        Without recompute if that fits, else with full recompute if that fits, else
        the one that lacks less.
    """
    everything = tuple(
        frozenset(i for i in range(first, last + 1) if setting.may_recompute(i))
        for first, last in cut
    )
    full = judge(setting, cut, everything)
    if setting.recompute == "full":
        return full
    plain = judge(setting, cut, (frozenset(),) * len(cut))
    return plain if plain.fits else min(plain, full, key=lacking_bytes)


def lacking_bytes(candidate: Candidate) -> int:
    """What the tightest card lacks.

    Args:
        candidate: Any.

    Returns:
        The size; 0 if it fits [bytes].
    """
    return max(0, *candidate.excess_bytes)


def in_turn(setting: Setting, cards: tuple[int, ...]) -> Setting:
    """Let some cards work one after the other.

    Args:
        setting: With one stage a card.
        cards: Their positions, ascending.

    Returns:
        A setting of these cards alone, with few microbatches.
    """
    cluster = cards_of(setting.cluster, cards)
    count = min(setting.num_microbatches, _MICROBATCHES_SEEN)
    return dataclasses.replace(
        setting,
        cluster=cluster,
        schedule=TURNS,
        num_microbatches=count,
        order=turn_actions(len(cluster), count),
    )


def turn_actions(num_stages: int, num_microbatches: int) -> Actions:
    """The order in which cards take turns.

    Args:
        num_stages: One a card.
        num_microbatches: Of one step.

    Returns:
        The actions of every card.
    """
    return tuple(
        tuple(
            Action(stage, kind, microbatch)
            for microbatch in range(num_microbatches)
            for kind in ("F", "B")
        )
        for stage in range(num_stages)
    )


def cards_of(cluster: Cluster, cards: tuple[int, ...]) -> Cluster:
    """Some cards of a cluster.

    Args:
        cluster: Of the user.
        cards: Their positions, ascending.

    Returns:
        These alone, joined by what lies between them.
    """
    links = tuple(cluster.link_between(*pair) for pair in pairwise(cards))
    return dataclasses.replace(
        cluster,
        devices=tuple(cluster.devices[card] for card in cards),
        links=links or cluster.links[:1],
    )


def as_baseline(
    candidate: Candidate, name: str, used_by: str, fact: str = ""
) -> Baseline:
    """What is kept of a candidate.

    Args:
        candidate: That was simulated.
        name: Of the way.
        used_by: Who does so.
        fact: What explains its time, or why it does not fit.

    Returns:
        The entry, not compared with a plan yet.
    """
    setting, excess = candidate.setting, candidate.excess_bytes
    return Baseline(
        name=name,
        used_by=used_by,
        layers_per_stage=tuple(last - first + 1 for first, last in candidate.cut),
        schedule=setting.schedule,
        microbatch_size=setting.microbatch_size,
        recompute="full" if any(candidate.recompute) else "none",
        step_s=candidate.step_s,
        fits=candidate.fits,
        missing_bytes=lacking_bytes(candidate),
        card=setting.cluster.devices[excess.index(max(excess))].name,
        judgement=fact,
    )


def busy_s(candidate: Candidate) -> list[float]:
    """How long each card works for one microbatch.

    Args:
        candidate: That was simulated.

    Returns:
        F and B of all its stages, one entry a card [s].
    """
    count = candidate.setting.num_microbatches
    return [busy / count for busy in candidate.timeline.busy_s]


def room(candidate: Candidate) -> str:
    """What takes the room on the card that lacks most.

    Args:
        candidate: That does not fit.

    Returns:
        Its largest items with their sizes.
    """
    excess = candidate.excess_bytes
    device = excess.index(max(excess))
    memory = candidate.memory()
    items: Counter[str] = Counter()
    for stage in candidate.setting.stages_of[device]:
        items.update(memory[stage].items())
    return ", ".join(f"{key} {format_bytes(n)}" for key, n in items.most_common(3))


def _busy_fact(candidate: Candidate, best: Candidate | None) -> str:
    """Why a split that fits takes as long as it does; empty if it is as quick."""
    own_s = busy_s(candidate)
    card = candidate.setting.cluster.devices[own_s.index(max(own_s))].name
    text = f"{card} works {format_seconds(max(own_s))} on each microbatch"
    if best is None:
        return text
    if candidate.step_s <= best.step_s * (1 + CLOSE):
        return ""
    plan_s = max(busy_s(best))
    if max(own_s) > plan_s * (1 + CLOSE):
        return f"{text}, no card of the plan more than {format_seconds(plan_s)}"
    return "no card works longer, but they wait longer for one another"


def _turn_fact(candidate: Candidate, num_cards: int) -> str:
    if len(candidate.cut) == 1:
        text = "all layers go to one card"
    else:
        waiting = "one waits" if num_cards == 2 else f"{num_cards - 1} wait"
        text = f"while one card works, {waiting}"
    return text if candidate.fits else f"{text}; {room(candidate)}"
