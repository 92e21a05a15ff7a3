"""A short check before training: is the plan's cut right for this model?

Types that are known to be exact are looked up. Of others a small copy is split
over as many stages as the plan has, in a second or two, and held against the copy
unsplit; a difference stops the run before it starts.
"""

from collections.abc import Sequence

from planner.chain.check import check_cut, unsplit_reference
from planner.chain.known import is_known_exact
from planner.chain.layers import find_chain
from planner.chain.shrunken import shrink_source
from planner.chain.source import ModelSource
from planner.errors import ModelError
from planner.plan import Plan


def check_before_training(plan: Plan, source: ModelSource) -> str:
    """Try the plan's cut on a small copy, unless its type is known to be exact.

    Args:
        plan: The plan.
        source: Its model.

    Returns:
        One line: what was tried or why it was not; empty if nothing had to be.

    Raises:
        ModelError: The copy does not train the same when it is cut; the message
            names what differs.
    """
    if len(plan.stages) == 1 or source.factory is not None:
        return ""
    is_own = type(source.config).__module__.startswith("transformers.")
    if is_own and is_known_exact(source.config.model_type):
        return ""
    what = f"the type {source.config.model_type}"
    try:
        copy = shrink_source(source)
        chain = find_chain(copy, attention=plan.attention)
        reference = unsplit_reference(copy, chain, attention=plan.attention)
    except ModelError as error:
        return f"not checked whether {what} trains the same when it is cut: {error}"
    share = [s.last_layer / plan.stages[-1].last_layer for s in plan.stages[:-1]]
    ends = cuts_at(share, chain.cuts, len(chain.layers))
    if not ends:
        return f"not checked whether {what} trains the same: a small copy has no cut"
    found = check_cut(copy, chain, reference, ends, attention=plan.attention)
    if not found.is_exact:
        after = ", ".join(chain.names[i] for i in ends)
        msg = (
            f"{source.id} does not train the same when it is cut: in a small copy, "
            f"cut after {after}, the loss differs by {found.loss:.1e} and the "
            f"gradient of {found.where or 'no parameter'} by {found.gradient:.1e}; "
            f"see planner check {source.id}, or train all the same with --no-check"
        )
        raise ModelError(msg)
    return (
        f"checked {what}: a small copy in {len(ends) + 1} stages trains as unsplit "
        f"(loss to {found.loss:.0e}, gradients to {found.gradient:.0e})"
    )


def cuts_at(
    shares: Sequence[float], legal: Sequence[int], num_layers: int
) -> tuple[int, ...]:
    """Carry cuts over to a model of another length.

    Args:
        shares: Where each cut lies, as a share of the way from the first layer to
            the last; rising.
        legal: Indices of the layers after which a cut is legal, rising.
        num_layers: Of the other model.

    Returns:
        The nearest legal cuts, each once; fewer than shares if there are not
        enough.
    """
    found: list[int] = []
    for share in shares:
        free = [cut for cut in legal if not found or cut > found[-1]]
        if free:
            place = share * (num_layers - 1)
            found.append(min(free, key=lambda cut, at=place: abs(cut - at)))  # type: ignore[misc]
    return tuple(found)
