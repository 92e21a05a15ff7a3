"""A split model against the unsplit one: the loss and every gradient.

Both hold the same weights, drawn from a seed, and see the same rows, in training
mode. The reference is the model as transformers builds it; its stages are built
as a run builds them and pass gradients back as a run does.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from planner.chain.layers import Chain
from planner.chain.loss import logits_of, loss_of, num_targets, summed_loss
from planner.chain.skeleton import build_skeleton
from planner.chain.source import ModelSource, build_model
from planner.chain.stage_module import StageModule
from planner.chain.stages import StageRecipe, build_stage

LOSS_TOLERANCE = 1e-6
GRADIENT_TOLERANCE = 1e-5

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class CutDifference:
    """What a cut changes.

    Attributes:
        last_layers: Index of the last layer of every stage but the last.
        loss: Relative difference of the summed loss.
        gradient: Worst difference of a parameter's gradient, relative to the norm
            of that gradient.
        where: Name of that parameter.
    """

    last_layers: tuple[int, ...]
    loss: float
    gradient: float
    where: str

    @property
    def is_exact(self) -> bool:
        """Whether loss and gradients agree to rounding."""
        return self.loss <= LOSS_TOLERANCE and self.gradient <= GRADIENT_TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reference:
    """The unsplit model's numbers.

    Attributes:
        inputs: `input_ids` and `labels`, maybe `attention_mask`, (batch, seq_len).
        loss: Summed over the target tokens.
        gradients: By canonical name; None where no gradient arrived.
        seed: Of the weights.
        skeleton: The model without weights; every stage takes a copy.
    """

    inputs: Mapping[str, torch.Tensor]
    loss: torch.Tensor
    gradients: Mapping[str, torch.Tensor | None]
    seed: int
    skeleton: torch.nn.Module


def make_inputs(
    vocab_size: int, *, batch_size: int = 2, seq_len: int = 16, masked: bool = True
) -> dict[str, torch.Tensor]:
    """Rows of random tokens; with a mask, the second one is padded on the left.

    Args:
        vocab_size: Of the model.
        batch_size: Rows.
        seq_len: Tokens of a row.
        masked: Whether to give an attention mask.

    Returns:
        `input_ids`, `labels` and maybe `attention_mask`, (batch_size, seq_len).
    """
    generator = torch.Generator().manual_seed(1)
    shape = (batch_size, seq_len)
    # Low ids are often special, and so are the highest.
    ids = torch.randint(3, vocab_size - 32, shape, generator=generator)
    labels = ids.clone()
    if not masked:
        return {"input_ids": ids, "labels": labels}
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    labels[1, :4] = -100
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


def run_unsplit(
    source: ModelSource,
    chain: Chain,
    inputs: Mapping[str, torch.Tensor],
    *,
    attention: str,
    seed: int = 0,
) -> Reference:
    """Train one step of the unsplit model, without an optimizer.

    Args:
        source: The model.
        chain: Its layers.
        inputs: Rows, see `make_inputs`.
        attention: Attention implementation of transformers.
        seed: Of the weights.

    Returns:
        Its loss and gradients.
    """
    skeleton = build_skeleton(source, dtype=torch.float32, attention=attention)
    everything = StageRecipe(
        first=0, last=len(chain.layers) - 1, dtype="float32", attention=attention
    )
    whole = build_stage(
        source,
        chain,
        everything,
        device=_CPU,
        seed=seed,
        skeleton=copy.deepcopy(skeleton),
    )
    model = build_model(source, dtype=torch.float32, attention=attention)
    _copy_weights(whole.model, model)
    torch.manual_seed(seed)
    given = {k: v for k, v in inputs.items() if k != "labels"}
    labels = {"labels": inputs["labels"]} if chain.adds_loss else {}
    if chain.computes_loss:
        labels = {k: v for k, v in inputs.items() if k == "labels"}
    output = model(**given, **labels, use_cache=False)
    # What a model adds is known to itself alone: then its own mean is the reference.
    mean = loss_of(output) if labels or chain.computes_loss else None
    if chain.computes_loss and mean is not None:
        loss = mean * len(next(iter(given.values())))
    elif mean is None:
        loss = summed_loss(logits_of(output), inputs["labels"])
    else:
        loss = mean * num_targets(inputs["labels"])
    loss.backward()  # type: ignore[no-untyped-call]
    canonical = chain.canonical
    gradients: dict[str, torch.Tensor | None] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        gradients[canonical.get(name, name)] = parameter.grad
    return Reference(
        inputs=inputs,
        loss=loss.detach(),
        gradients=gradients,
        seed=seed,
        skeleton=skeleton,
    )


def compare(
    source: ModelSource,
    chain: Chain,
    reference: Reference,
    last_layers: Sequence[int],
    *,
    attention: str,
) -> CutDifference:
    """Train the same step split, and say how the numbers differ.

    Args:
        source: The model.
        chain: Its layers.
        reference: From `run_unsplit`.
        last_layers: Index of the last layer of every stage but the last.
        attention: Attention implementation of transformers.

    Returns:
        The differences.
    """
    ends = [*last_layers, len(chain.layers) - 1]
    starts = [0, *(end + 1 for end in last_layers)]
    stages = [
        build_stage(
            source,
            chain,
            StageRecipe(first=a, last=b, dtype="float32", attention=attention),
            device=_CPU,
            seed=reference.seed,
            skeleton=copy.deepcopy(reference.skeleton),
        )
        for a, b in zip(starts, ends, strict=True)
    ]
    torch.manual_seed(reference.seed)
    loss = run_split(stages, reference.inputs)
    gradients = _summed_gradients(stages)
    worst, where = 0.0, ""
    for name, expected in reference.gradients.items():
        difference = _relative_difference(gradients.get(name), expected)
        if not difference <= worst:
            worst, where = difference, name
    return CutDifference(
        last_layers=tuple(last_layers),
        loss=_relative_difference(loss, reference.loss),
        gradient=worst,
        where=where,
    )


def run_split(
    stages: Sequence[StageModule], inputs: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Forward and backward through all stages in one process.

    Args:
        stages: First to last.
        inputs: Rows, see `make_inputs`.

    Returns:
        The summed loss; the gradients lie in the stages' parameters.
    """
    sent: list[tuple[torch.Tensor, ...]] = []
    received: list[tuple[torch.Tensor, ...]] = []
    handed: tuple[torch.Tensor, ...] = ()
    for stage in stages:
        handed = tuple(x.detach().requires_grad_(x.is_floating_point()) for x in handed)
        received.append(handed)
        given = inputs if stage.is_last else {**inputs, "labels": None}
        output = stage(*handed, **given)
        handed = output if isinstance(output, tuple) else (output,)
        sent.append(handed)
    (loss,) = sent.pop()
    loss.backward()  # type: ignore[no-untyped-call]
    for outputs, copies in reversed(list(zip(sent, received[1:], strict=True))):
        pairs = [
            (x, copy.grad)
            for x, copy in zip(outputs, copies, strict=True)
            if copy.grad is not None and x.requires_grad
        ]
        if pairs:
            torch.autograd.backward([x for x, _ in pairs], [g for _, g in pairs])
    return loss.detach()


def _copy_weights(drawn: torch.nn.Module, model: torch.nn.Module) -> None:
    tensors = dict(drawn.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, parameter in model.named_parameters(remove_duplicate=False):
            parameter.copy_(tensors[name])


def _summed_gradients(stages: Iterable[StageModule]) -> dict[str, torch.Tensor]:
    """By canonical name; a tied parameter's gradients add up over its holders."""
    total: dict[str, Any] = {}
    for stage in stages:
        for name, parameter in stage.owned_parameters().items():
            if parameter.grad is not None:
                total[name] = total.get(name, 0) + parameter.grad
    return total


def _relative_difference(
    found: torch.Tensor | None, expected: torch.Tensor | None
) -> float:
    if expected is None or found is None:
        other = found if expected is None else expected
        return 0.0 if other is None or not other.any() else float("inf")
    difference = (found - expected).double().norm().item()
    norm = expected.double().norm().item()
    if difference == 0:
        return 0.0
    return difference / norm if norm else float("inf")
