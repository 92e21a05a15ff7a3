"""Whether an architecture of transformers trains the same when it is cut.

A tiny model of the type is cut at every legal place, and over three and four
stages; each time loss and gradients are held against the unsplit model.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from planner.chain.check import differences
from planner.chain.layers import Chain, find_chain
from planner.chain.parity import CutDifference, make_inputs, run_unsplit
from planner.chain.source import ModelSource, build_model
from planner.chain.tiny import tiny_config
from planner.errors import ModelError

VOCAB = 256

Status = Literal["exact", "inexact", "refused", "no tiny config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How one architecture fares.

    Attributes:
        model_type: Of transformers.
        architecture: Class of the model, empty if none could be built.
        status: `exact` if all legal cuts are; a type without any is refused.
        num_legal: Legal cuts.
        num_cuts: Places between two layers.
        num_extras: Most tensors besides the hidden state that cross one cut.
        adds_loss: Whether the model adds something, such as a balance loss, to
            the cross-entropy when asked for its router's logits.
        detail: What differs, why it is refused, or why some cuts are illegal.
    """

    model_type: str
    architecture: str = ""
    status: Status
    num_legal: int = 0
    num_cuts: int = 0
    num_extras: int = 0
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
        source = ModelSource(id=model_type, config=tiny_config(model_type))
    except ModelError as error:
        return Coverage(
            model_type=model_type, status="no tiny config", detail=str(error)
        )
    try:
        chain = find_chain(source, attention="auto")
    except ModelError as error:
        return Coverage(model_type=model_type, status="refused", detail=str(error))
    inputs = make_inputs(VOCAB)
    reference = run_unsplit(source, chain, inputs, attention="auto")
    offenders = [
        x
        for x in differences(source, chain, reference, attention="auto")
        if not x.is_exact
    ]
    status: Status = "inexact" if offenders else "exact" if chain.cuts else "refused"
    reasons = dict.fromkeys(x.why for x in chain.uncuttable)
    detail = _offence(chain, offenders[0]) if offenders else "; ".join(reasons)
    extras = chain.handover.extras
    return Coverage(
        model_type=model_type,
        architecture=chain.architecture,
        status=status,
        num_legal=len(chain.cuts),
        num_cuts=len(chain.layers) - 1,
        num_extras=max(
            sum(x.crosses(chain.calls_before(cut + 1)) for x in extras)
            for cut in range(len(chain.layers) - 1)
        ),
        adds_loss=_adds_loss(source, inputs),
        detail=detail,
    )


def _offence(chain: Chain, worst: CutDifference) -> str:
    after = ", ".join(chain.names[i] for i in worst.last_layers)
    return (
        f"cut after {after}: loss {worst.loss:.1e}, gradient of {worst.where} "
        f"{worst.gradient:.1e}"
    )


def _adds_loss(source: ModelSource, inputs: dict[str, torch.Tensor]) -> bool:
    """Whether the model's own loss is more than the cross-entropy."""
    if not hasattr(source.config, "output_router_logits"):
        return False
    model: Any = build_model(source, dtype=torch.float32, attention="auto")
    ids = inputs["input_ids"]
    with torch.no_grad():
        try:
            output = model(
                input_ids=ids, labels=ids, use_cache=False, output_router_logits=True
            )
        except (RuntimeError, TypeError, ValueError, KeyError, AttributeError):
            return False
    logits = output.logits[:, :-1].float().flatten(0, 1)
    plain = torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten())
    return bool((output.loss - plain).abs() > 1e-5 * plain)
