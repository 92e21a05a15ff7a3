"""Which of a machine's CUDA cards a device of a plan is.

Cards go by name, not by position. `rtx4090:0` is the first RTX 4090 that CUDA lists,
wherever it stands; where the machine's cards are not those of the plan, the order in
which they were given to the solver counts.
"""

from collections import Counter
from collections.abc import Sequence

from planner.cards import card_called
from planner.plan import Plan


def card_number(plan: Plan, rank: int, found: Sequence[str]) -> int:
    """The number that CUDA gives to the card of a device.

    Args:
        plan: The plan.
        rank: Of the process: the devices copy by copy.
        found: What CUDA calls the machine's cards, by number.

    Returns:
        A number below `len(found)`, another one for every rank; `rank` itself where
        neither names nor the order given say more.
    """
    names = plan.used_cards
    here = _names(found)
    if set(names) <= set(here):
        return here.index(names[rank])
    given = plan.given_cards
    if set(names) <= set(given) and len(given) <= len(found):
        return given.index(names[rank])
    return rank


def _names(found: Sequence[str]) -> list[str]:
    """The machine's cards as a plan names them."""
    counts: Counter[str] = Counter()
    names = []
    for called in found:
        card = card_called(called)
        kind = called if card is None else card.name
        names.append(f"{kind}:{counts[kind]}")
        counts[kind] += 1
    return names
