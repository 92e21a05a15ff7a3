"""A plan as a person reads it: one table, one line of result, one of proof.

    stage  device     memory                            F       B    busy  layers
        0  rtx3090:0  [########--]  18.2 of 23.7 GiB  24.1 ms  ...

The bar fills with what the stage needs at its fullest moment, reserve included.
"""

import re
import textwrap
from collections.abc import Sequence
from itertools import groupby

from planner.plan import Alternative, CardPlan, Plan, StagePlan
from planner.units import (
    GIB,
    KIB,
    MIB,
    format_bytes,
    format_count,
    format_percent,
    format_seconds,
)

_BAR_CELLS = 10
# Smaller differences of step times are those of rounding.
_SAME = 1e-6
# Smaller shares of a step are not told.
_WORTH_TELLING = 0.001
_MOST_ALTERNATIVES = 3
_WIDTH = 100
_INDENT = " " * 7
_HEADER = ("stage", "device", "memory", "busy", "F", "B", "layers")
_RIGHT = {"stage", "F", "B", "busy"}


def describe_plan(plan: Plan) -> str:
    """Write a plan for a terminal.

    Args:
        plan: What to describe.

    Returns:
        Lines of at most 100 columns: what is trained, a row per stage, the
        result, the links, what others would take, what a wished cut costs, and
        the proof.
    """
    return "\n".join(
        [
            _title(plan),
            "",
            *_table(plan),
            *_other_copies(plan),
            "",
            *_result(plan),
            *_where_time_goes(plan),
            *_optimizer(plan),
            *_cards(plan),
            *_links(plan),
            *_alternatives(plan),
            *_others(plan),
            *_wished_cut(plan),
            _proof(plan),
        ]
    )


def layer_ranges(names: Sequence[str]) -> str:
    """Write layer names compactly.

    Args:
        names: In order.

    Returns:
        Such as `model.embed_tokens, model.layers.0-8`: names that differ only in
        a last number that counts up are joined.
    """
    split = [re.fullmatch(r"(.*?)(\d+)", name) for name in names]
    runs = []
    keys = [
        (match[1], int(match[2]) - place) if match else (name, None)
        for place, (name, match) in enumerate(zip(names, split, strict=True))
    ]
    for _, group in groupby(range(len(names)), key=keys.__getitem__):
        places = list(group)
        first, last = names[places[0]], split[places[-1]]
        runs.append(first if len(places) == 1 or not last else f"{first}-{last[2]}")
    return ", ".join(runs)


def memory_bar(used_bytes: int, capacity_bytes: int) -> str:
    """Draw how full a card is.

    Args:
        used_bytes: Needed at the fullest moment [bytes].
        capacity_bytes: Of the card [bytes].

    Returns:
        Ten cells in brackets.
    """
    share = used_bytes / capacity_bytes if capacity_bytes else 0.0
    filled = min(round(share * _BAR_CELLS), _BAR_CELLS)
    return "[" + "#" * filled + "-" * (_BAR_CELLS - filled) + "]"


def describe_links(plan: Plan) -> str:
    """Write what joins the stages, or copies of a single one.

    Args:
        plan: The plan.

    Returns:
        `pcie4x8 (assumed)`, or each with its stages where they differ; empty if the
        plan does not say.
    """
    links = [(i, link) for i, link in enumerate(plan.links) if link.origin != "none"]
    if not links and plan.copies_link:
        links = [(0, plan.copies_link)]
    if not links:
        return ""
    runs = [list(run) for _, run in groupby(links, lambda x: x[1].name)]
    parts = [f"{run[0][0]}-{run[-1][0] + 1} {run[0][1].name}" for run in runs]
    text = links[0][1].name if len(runs) == 1 else "; ".join(parts)
    origins = dict.fromkeys(link.origin for _, link in links)
    return f"{text} ({', '.join(origins)})"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, subsequent_indent=_INDENT, break_on_hyphens=False
    )


def _optimizer(plan: Plan) -> list[str]:
    own = plan.optimizer
    if not own.passed_over:
        return []
    text = (
        f"optimizer: {own.name}, {own.bytes_per_parameter} bytes a parameter, as "
        f"nothing fits with {' or '.join(own.passed_over)}"
    )
    return _wrapped(text)


def _cards(plan: Plan) -> list[str]:
    used = list(plan.used_cards)
    parts = []
    if left_out := [name for name in plan.given_cards if name not in used]:
        parts.append(f"{', '.join(left_out)} left out, as it is quicker without")
    if plan.given_cards and used != [x for x in plan.given_cards if x in used]:
        parts.append(f"in another order: {', '.join(used)}")
    if not parts:
        return []
    return _wrapped(f"cards: {'; '.join(parts)} (--keep-cards for all as given)")


def _links(plan: Plan) -> list[str]:
    text = describe_links(plan)
    return _wrapped(f"links: {text}") if text else []


def _title(plan: Plan) -> str:
    schedule, size = plan.schedule, plan.schedule.microbatch_size
    name = plan.model.id or plan.model.architecture or "model"
    return (
        f"{name} on {plan.num_cards_text}: {_copies(plan)}"
        f"{schedule.name}, {schedule.num_microbatches} microbatches of "
        f"{size} x {plan.seq_len} tokens, {plan.dtype}, {plan.optimizer.name}"
    )


def _copies(plan: Plan) -> str:
    if not plan.copies:
        return ""
    each = "1 card" if plan.num_devices == 1 else f"{plan.num_devices} cards"
    return f"{plan.num_copies} copies on {each} each, "


def _other_copies(plan: Plan) -> list[str]:
    if not plan.copies:
        return []
    cards = "; ".join(", ".join(cards) for cards in plan.copies)
    return _wrapped(
        f"the same on {cards}; summing gradients "
        f"{format_seconds(plan.predicted.reduce_s)} a step"
    )


def _table(plan: Plan) -> list[str]:
    pairs = zip(plan.stages, plan.card_of_stage, strict=True)
    rows = [_HEADER, *(_row(stage, card) for stage, card in pairs)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER) - 1)]
    starts = []
    for row in rows:
        cells = [
            cell.rjust(width) if title in _RIGHT else cell.ljust(width)
            for title, cell, width in zip(_HEADER, row, widths, strict=False)
        ]
        starts.append("  ".join(cells))
    layers = [row[-1] for row in rows]
    if (
        max(
            len(start) + 2 + len(text)
            for start, text in zip(starts, layers, strict=True)
        )
        <= _WIDTH
    ):
        return [f"{start}  {text}" for start, text in zip(starts, layers, strict=True)]
    # Too wide for one line: the layers of every stage go below its numbers.
    lines = [starts[0].rstrip()]
    for start, text in zip(starts[1:], layers[1:], strict=True):
        lines += [start.rstrip(), *_indented(text)]
    return lines


def _indented(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _row(stage: StagePlan, card: CardPlan) -> tuple[str, ...]:
    predicted = stage.predicted
    layers = layer_ranges(stage.layers)
    if stage.recompute:
        layers += f" ({len(stage.recompute)} recomputed)"
    return (
        str(stage.index),
        stage.device,
        *_of_card(stage, card),
        format_seconds(predicted.forward_s),
        format_seconds(predicted.backward_s),
        layers,
    )


def _of_card(stage: StagePlan, card: CardPlan) -> tuple[str, str]:
    """Memory and busy share of a card, in the row of the first of its stages."""
    if stage.index != card.stages[0]:
        return f"with stage {card.stages[0]}", ""
    used_bytes, capacity_bytes = card.memory_bytes.total, card.capacity_bytes
    bar = memory_bar(used_bytes, capacity_bytes)
    busy = format_percent(card.busy_fraction)
    return f"{bar} {_of(used_bytes, capacity_bytes)}", busy


def _of(used_bytes: int, capacity_bytes: int) -> str:
    """`18.2 of 23.7 GiB`: both in the unit of the capacity."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if capacity_bytes >= factor:
            used, whole = used_bytes / factor, capacity_bytes / factor
            return f"{used:5.1f} of {whole:.1f} {unit}"
    return f"{used_bytes} of {format_bytes(capacity_bytes)}"


def _result(plan: Plan) -> list[str]:
    predicted = plan.predicted
    busy = (1 - predicted.bubble_fraction) * plan.num_processes
    return [
        f"{format_seconds(predicted.step_s)} a step, "
        f"{format_count(predicted.tokens_per_s)} tokens/s, "
        f"bubble {format_percent(predicted.bubble_fraction)}, "
        f"{busy:.2f} of {plan.num_cards_text} busy"
    ]


def _where_time_goes(plan: Plan) -> list[str]:
    """What keeps a step from being all work, and the card with the least room."""
    predicted = plan.predicted
    if not predicted.step_s or not predicted.makespan_s:
        return []
    share = predicted.makespan_s / predicted.step_s
    parts = {
        "bubble": predicted.bubble_fraction * share,
        "recompute": predicted.recompute_fraction * share,
        "optimizer": predicted.optimizer_s / predicted.step_s,
        "sums of gradients": (predicted.tie_s + predicted.reduce_s) / predicted.step_s,
    }
    lost = [
        f"{name} {format_percent(part)}"
        for name, part in sorted(parts.items(), key=lambda item: -item[1])
        if part >= _WORTH_TELLING
    ]
    fullest = min(plan.cards, key=lambda card: -card.excess_bytes)
    room = ""
    if fullest.capacity_bytes:
        room = f"; {fullest.device} has least room, {_spare(fullest)} left"
    return _wrapped(f"not work: {', '.join(lost) or 'nothing'}{room}")


def _spare(card: CardPlan) -> str:
    return format_bytes(max(-card.excess_bytes, 0))


def _alternatives(plan: Plan) -> list[str]:
    ours_s = plan.predicted.step_s
    if not ours_s or not plan.alternatives:
        return []
    told = [
        f"{_difference(plan, other)} {other.step_s / ours_s:.2f}x"
        for other in plan.alternatives[:_MOST_ALTERNATIVES]
    ]
    return _wrapped(f"next best: {', '.join(told)} the time")


def _difference(plan: Plan, other: Alternative) -> str:
    """In what another plan of the search is not like this one."""
    parts = [other.schedule]
    if other.num_copies != plan.num_copies:
        copies = "copy" if other.num_copies == 1 else "copies"
        parts.append(f"{other.num_copies} {copies}")
    count = plan.num_stages // plan.num_devices
    if other.stages_per_device != count and other.num_copies == plan.num_copies:
        parts.append(f"{other.stages_per_device} a card")
    if other.microbatch_size != plan.schedule.microbatch_size:
        parts.append(f"microbatches of {other.microbatch_size}")
    more = f" ({', '.join(parts[1:])})" if parts[1:] else ""
    return f"{parts[0]}{more}"


def _others(plan: Plan) -> list[str]:
    ours_s = plan.predicted.step_s
    if not plan.baselines or not ours_s:
        return []
    lines = []
    if quicker := plan.quicker_baselines:
        lines.append(
            f"quicker: {quicker[0].name} would take "
            f"{format_seconds(quicker[0].step_s)} a step; planner compare says why"
        )
    fitting = [entry for entry in plan.baselines if entry.fits]
    parts = [
        f"{entry.name} {entry.step_s / ours_s:.2f}x the time"
        for entry in sorted(fitting, key=lambda entry: entry.step_s)
    ]
    if parts:
        lines.append(f"beside it: {', '.join(parts)}")
    if too_large := [entry.name for entry in plan.baselines if not entry.fits]:
        lines.append(f"do not fit: {', '.join(too_large)}")
    return [row for line in lines for row in _wrapped(line)]


def _wished_cut(plan: Plan) -> list[str]:
    free = plan.solver.free_cut
    if free is None:
        return []
    more_s = plan.predicted.step_s - free.step_s
    if more_s <= _SAME * free.step_s:
        return ["your cut: no quicker one is known"]
    counts = "+".join(map(str, free.layers_per_stage))
    text = (
        f"your cut costs {format_seconds(more_s)} a step, "
        f"{format_percent(more_s / free.step_s)}: {counts} layers under "
        f"{free.schedule}, microbatches of {free.microbatch_size}, take "
        f"{format_seconds(free.step_s)}"
    )
    return _wrapped(text)


def _proof(plan: Plan) -> str:
    solver = plan.solver
    effort = f"{solver.candidates} simulated in {format_seconds(solver.solve_s)}"
    if solver.status == "optimal":
        what = "no cut has a shorter step under a named schedule"
        if solver.free_cut is not None:
            what = "your cut has no shorter step under a named schedule"
        return f"optimal: {what}; {effort}"
    return (
        f"feasible: no more than {format_percent(solver.gap)} above the best possible "
        f"(bound {format_seconds(solver.bound_s)}); {effort}"
    )
