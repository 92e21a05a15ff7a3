"""Whether an architecture of transformers trains the same when it is cut.

A tiny model of the type is cut at every legal place, and over three and four
stages; each time loss and gradients are held against the unsplit model. A model
that can add a balance loss is asked to.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from planner.chain.check import differences, unsplit_reference
from planner.chain.crossing import Collected, Extra
from planner.chain.layers import Chain, find_chain
from planner.chain.parity import CutDifference
from planner.chain.shrunken import open_shrunken
from planner.errors import ModelError

Status = Literal["exact", "inexact", "refused", "no tiny config", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How one architecture fares.

    Attributes:
        model_type: Of transformers.
        architecture: Class of the model, empty if none could be built.
        status: `exact` if all legal cuts are; a type without any is refused; one
            that crashes or takes too long failed.
        num_legal: Legal cuts.
        num_cuts: Places between two layers.
        travels: What crosses a cut besides the hidden state, such as
            `argument 1`; with a number if several do at once.
        adds_loss: Whether the model adds something, such as a balance loss, to
            the cross-entropy.
        detail: What differs, why it is refused, or which cuts are illegal and why.
    """

    model_type: str
    architecture: str = ""
    status: Status
    num_legal: int = 0
    num_cuts: int = 0
    travels: tuple[str, ...] = ()
    adds_loss: bool = False
    detail: str = ""


def check_type(model_type: str) -> Coverage:
    """Compare every cut of a tiny model with the unsplit one.

    Args:
        model_type: A key of transformers' table of causal language models.

    Returns:
        The result.
    """
    try:
        source = open_shrunken(model_type)
    except ModelError as error:
        return Coverage(
            model_type=model_type, status="no tiny config", detail=str(error)
        )
    try:
        chain = find_chain(source, attention="auto")
    except ModelError as error:
        return Coverage(model_type=model_type, status="refused", detail=str(error))
    reference = unsplit_reference(source, chain, attention="auto")
    found = differences(source, chain, reference, attention="auto")
    offenders = [x for x in found if not x.is_exact]
    status: Status = "inexact" if offenders else "exact" if chain.cuts else "refused"
    return Coverage(
        model_type=model_type,
        architecture=chain.architecture,
        status=status,
        num_legal=len(chain.cuts),
        num_cuts=len(chain.layers) - 1,
        travels=_travels(chain),
        adds_loss=chain.adds_loss,
        detail=_offence(chain, offenders[0]) if offenders else _illegal(chain),
    )


def _travels(chain: Chain) -> tuple[str, ...]:
    """What crosses cuts besides the hidden state, by name, with the most at once."""
    most: Counter[str] = Counter()
    for cut in chain.cuts:
        before = chain.calls_before(cut + 1)
        extras = (x for x in chain.handover.extras if x.crosses(before))
        collected = (x for x in chain.handover.collected if x.crosses(before))
        names = [*map(_argument, extras), *(_collected(chain, x) for x in collected)]
        most |= Counter(names)
    return tuple(f"{n} x {name}" if n > 1 else name for name, n in most.items())


def _argument(extra: Extra) -> str:
    _, path = extra.targets[0]
    return f"argument {'.'.join(map(str, path))}"


def _collected(chain: Chain, tensor: Collected) -> str:
    """The module that a collected tensor comes from, inside its block."""
    module = tensor.source[0]
    block = chain.names[chain.calls[tensor.call]]
    inner = module.removeprefix(block).removeprefix(".")
    return f"output of {inner or 'the block'}"


def _illegal(chain: Chain) -> str:
    """Which cuts there are not, by reason."""
    places: dict[str, list[int]] = {}
    for place in chain.uncuttable:
        places.setdefault(place.why, []).append(place.layer)
    return "; ".join(f"no cut after {_ranges(x)}: {why}" for why, x in places.items())


def _ranges(layers: Iterable[int]) -> str:
    """`the embedding, blocks 0-3, 5` from indices of layers, in order."""
    names = []
    for _, run in groupby(enumerate(layers), key=lambda pair: pair[1] - pair[0]):
        first, *rest = (layer - 1 for _, layer in run)
        if first < 0:
            names.append("the embedding")
            first, *rest = rest or [-1]
        if first >= 0:
            names.append(f"block {first}" if not rest else f"blocks {first}-{rest[-1]}")
    return ", ".join(names)


def _offence(chain: Chain, worst: CutDifference) -> str:
    after = ", ".join(chain.names[i] for i in worst.last_layers)
    return (
        f"cut after {after}: loss {worst.loss:.1e}, gradient of {worst.where} "
        f"{worst.gradient:.1e}"
    )
