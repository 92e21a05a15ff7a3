"""Whether a model trains the same when it is cut, tried on a small copy of it.

report = check_model("llama")    every legal cut, and one over 3 and 4 stages
check_cut(copy, chain, [2])      one cut, as for a plan
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from planner.chain.foreign_error import one_line
from planner.chain.inputs import make_rows
from planner.chain.layers import Chain, find_chain
from planner.chain.parity import (
    CutDifference,
    Reference,
    compare,
    make_inputs,
    run_unsplit,
)
from planner.chain.shrunken import input_settings, open_shrunken
from planner.chain.source import ModelSource, quiet_transformers
from planner.errors import ModelError

_CPU = torch.device("cpu")
_OWN_SHAPE = (2, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutCheck:
    """What one cut changes.

    Attributes:
        after_layer: Name of the last layer of the stage before the cut; several
            for more than two stages, separated by `, `.
        loss_difference: Of the summed loss, relative.
        worst_gradient_difference: Of a parameter's gradient, relative to its norm;
            infinite (null in JSON) where one arrives that should not, or none.
        where: Name of that parameter; empty if there is no difference at all.
    """

    after_layer: str
    loss_difference: float
    worst_gradient_difference: float
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCut:
    """A place where the model is never cut.

    Attributes:
        after_layer: Name of the layer before it.
        why: The mechanism, half a sentence.
    """

    after_layer: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """How the small copy of a model fares.

    Attributes:
        model: As the user named it.
        exact: Whether every cut gives the loss and all gradients to rounding.
        num_parameters: Elements of the copy's parameters, tied ones once.
        num_gradients: Elements of those that got a gradient; all are compared.
        cuts: One for each legal cut into two stages.
        several: One each over three and four stages.
        refused: Where there is no cut.
    """

    model: str
    exact: bool
    num_parameters: int
    num_gradients: int
    cuts: tuple[CutCheck, ...]
    several: tuple[CutCheck, ...] = ()
    refused: tuple[RefusedCut, ...] = ()

    @property
    def tried(self) -> tuple[CutCheck, ...]:
        """All that was compared."""
        return (*self.cuts, *self.several)


def check_model(
    model: str,
    *,
    attention: str = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> CheckReport:
    """Cut a small copy of a model everywhere and compare it with itself unsplit.

    Args:
        model: Hub id, folder, or a type of transformers such as `llama`.
        attention: Attention implementation of transformers.
        revision: Commit or branch of the hub.
        trust_remote_code: Whether the model's own code may run.

    Returns:
        What every cut changes.

    Raises:
        ModelError: There is no such model, it has no small copy, or it cannot be
            cut at all; the message names the mechanism.
    """
    with quiet_transformers():
        source = open_shrunken(
            model, revision=revision, trust_remote_code=trust_remote_code
        )
        chain = find_chain(source, attention=attention)
        if not chain.cuts:
            reasons = "; ".join(dict.fromkeys(x.why for x in chain.uncuttable))
            msg = f"{model} cannot be cut anywhere: {reasons}"
            raise ModelError(msg)
        reference = unsplit_reference(source, chain, attention=attention)
        found = tuple(differences(source, chain, reference, attention=attention))
    return CheckReport(
        model=model,
        exact=all(x.is_exact for x in found),
        num_parameters=chain.num_parameters,
        num_gradients=sum(
            x.numel() for x in reference.gradients.values() if x is not None
        ),
        cuts=tuple(_cut_check(chain, x) for x in found if len(x.last_layers) == 1),
        several=tuple(_cut_check(chain, x) for x in found if len(x.last_layers) > 1),
        refused=tuple(
            RefusedCut(after_layer=chain.names[x.layer], why=x.why)
            for x in chain.uncuttable
        ),
    )


def unsplit_reference(
    source: ModelSource, chain: Chain, *, attention: str
) -> Reference:
    """Train one step of the copy unsplit.

    Args:
        source: The copy.
        chain: Its layers.
        attention: Attention implementation of transformers.

    Returns:
        Its loss and gradients.

    Raises:
        ModelError: It does not train at all.
    """
    try:
        inputs = _inputs(source, attention)
        return run_unsplit(source, chain, inputs, attention=attention)
    except ModelError:
        raise
    except Exception as error:  # a model's own code may raise anything
        msg = f"a small copy of {source.id} does not train unsplit: {one_line(error)}"
        raise ModelError(msg) from error


def _inputs(source: ModelSource, attention: str) -> dict[str, torch.Tensor]:
    if source.factory is None:
        return make_inputs(**input_settings(source, attention=attention))
    return make_rows(source, _OWN_SHAPE, dtype=torch.float32, device=_CPU)


def differences(
    source: ModelSource, chain: Chain, reference: Reference, *, attention: str
) -> Iterator[CutDifference]:
    """Compare all legal cuts into two stages, and one each into three and four.

    Args:
        source: The copy.
        chain: Its layers.
        reference: The unsplit copy's numbers.
        attention: Attention implementation of transformers.

    Yields:
        One difference a cut.
    """
    several = (spread(chain.cuts, number) for number in (2, 3))
    for ends in [*([cut] for cut in chain.cuts), *filter(None, several)]:
        yield check_cut(source, chain, reference, ends, attention=attention)


def check_cut(
    source: ModelSource,
    chain: Chain,
    reference: Reference,
    last_layers: Sequence[int],
    *,
    attention: str,
) -> CutDifference:
    """Compare one cut; a stage that fails is a difference, too.

    Args:
        source: The copy.
        chain: Its layers.
        reference: The unsplit copy's numbers.
        last_layers: Index of the last layer of every stage but the last.
        attention: Attention implementation of transformers.

    Returns:
        The differences; infinite ones if the split copy does not run, with the
        error in place of the parameter.
    """
    try:
        return compare(source, chain, reference, last_layers, attention=attention)
    except Exception as error:  # a model's own code may raise anything
        return CutDifference(
            last_layers=tuple(last_layers),
            loss=float("inf"),
            gradient=float("inf"),
            where=one_line(error),
        )


def spread(cuts: Sequence[int], number: int) -> list[int]:
    """Some of the cuts, spread evenly.

    Args:
        cuts: All that are legal, rising.
        number: How many are wanted.

    Returns:
        As many; none if there are too few.
    """
    if len(cuts) < number:
        return []
    return [cuts[(2 * i + 1) * len(cuts) // (2 * number)] for i in range(number)]


def _cut_check(chain: Chain, found: CutDifference) -> CutCheck:
    return CutCheck(
        after_layer=", ".join(chain.names[i] for i in found.last_layers),
        loss_difference=found.loss,
        worst_gradient_difference=found.gradient,
        where=found.where,
    )
