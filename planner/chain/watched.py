"""A model that has been watched once, on fake tensors where that is possible.

Fake tensors have shapes but no values, so a model of any size runs without memory.
Some models look at values while they run: a small one is then run for real, and in
place of a large one a narrow copy with as many layers.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from planner.chain.foreign_error import one_line
from planner.chain.inputs import make_rows
from planner.chain.loss import NoCrossEntropy, logits_of, loss_of
from planner.chain.observation import Observation
from planner.chain.observe import observe
from planner.chain.own_module import computes_loss, layers_of
from planner.chain.skeleton import build_skeleton
from planner.chain.source import ModelSource, build_model
from planner.chain.tiny import shrink_config
from planner.chain.tiny.rules import HIDDEN
from planner.errors import ModelError

# Batch and sequence of the run: numbers that no other dimension is likely to have.
WATCHED_SHAPE = (3, 17)
# What models take that are made for lengths of a certain kind.
_OTHER_SHAPE = (1, 16)

_CPU = torch.device("cpu")

# Models up to this size are run for real if fake tensors do not do.
_SMALL = 2**27


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Watched:
    """A model and what was seen of it.

    Attributes:
        model: Its parameters have no values.
        paths: Of the blocks.
        blocks: The blocks themselves.
        seen: What happened.
        dtype: Of the parameters of the model that ran.
        sizes: If that was a narrow copy: its dimensions and those of the model.
    """

    model: torch.nn.Module
    paths: tuple[str, ...]
    blocks: tuple[torch.nn.Module, ...]
    seen: Observation
    dtype: torch.dtype
    sizes: Mapping[int, int] = field(default_factory=dict)


def watch_model(
    source: ModelSource, *, attention: str, shape: tuple[int, int]
) -> Watched:
    """Build a model and watch it run.

    Args:
        source: The model.
        attention: Attention implementation of transformers.
        shape: Of the token ids, (batch, seq_len).

    Returns:
        The model with what was seen.

    Raises:
        ModelError: It has no list of blocks, or it cannot be run from token ids.
    """
    fake = _fake_model(source, attention)
    is_small = sum(p.numel() for p in fake.model.parameters()) <= _SMALL
    shapes = (shape, _OTHER_SHAPE) if shape == WATCHED_SHAPE else (shape,)
    failures: list[Exception] = []
    # With labels if possible: a model may add something to its loss.
    for with_labels, is_real in product((True, False), (False, True)):
        try:
            if is_real and not is_small:
                return _watch_narrow(source, fake.model, attention, shape, with_labels)
        except Exception as error:  # whatever a model's code may raise
            failures.append(error)
            continue
        subject = _real_model(source, attention) if is_real else fake
        for tried in shapes:
            try:
                with _quiet_fakes():
                    return _watch(subject, source, tried, with_labels)
            except ModelError:
                raise
            except Exception as error:  # whatever a model's code may raise
                failures.append(error)
    msg = (
        f"{source.id} does not run from token ids alone: {one_line(failures[-1])}; "
        "check its configuration, or give a model that takes nothing else"
    )
    raise ModelError(msg) from failures[-1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Subject:
    """A model to be watched.

    Attributes:
        model: The model.
        dtype: Of its parameters.
        token: What the token ids are filled with.
        mode: In which it runs.
    """

    model: torch.nn.Module
    dtype: torch.dtype
    token: int
    mode: contextlib.AbstractContextManager[object]


def _fake_model(source: ModelSource, attention: str) -> _Subject:
    # Fake grouped matrix products, which experts use, exist in bfloat16 only.
    dtype = torch.bfloat16 if source.factory is None else torch.float32
    model = build_skeleton(source, dtype=dtype, attention=attention)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        _make_fake(model)
    return _Subject(model=model, dtype=dtype, token=0, mode=mode)


def _real_model(source: ModelSource, attention: str) -> _Subject:
    dtype, mode = torch.float32, contextlib.nullcontext()
    model = build_model(source, dtype=dtype, attention=attention)
    return _Subject(model=model, dtype=dtype, token=5, mode=mode)


def _watch_narrow(
    source: ModelSource,
    model: torch.nn.Module,
    attention: str,
    shape: tuple[int, int],
    with_labels: bool,
) -> Watched:
    """Watch a narrow copy run for real in place of a model that is too large.

    All names and all that flows are the same; only the widths differ.
    """
    narrow = replace(source, config=shrink_config(source.config, only_widths=True))
    subject = _real_model(narrow, attention)
    watched = _watch(subject, narrow, WATCHED_SHAPE, with_labels)
    (rows, tokens), (few_rows, few_tokens) = shape, WATCHED_SHAPE
    width = source.config.get_text_config(decoder=True).hidden_size
    sizes = {
        few_rows: rows,
        few_tokens: tokens,
        few_rows * few_tokens: rows * tokens,
        HIDDEN: width,
    }
    blocks = tuple(model.get_submodule(path) for path in watched.paths)
    return replace(watched, model=model, blocks=blocks, sizes=sizes)


@contextlib.contextmanager
def _quiet_fakes() -> Iterator[None]:
    """Keep torch from writing what fake tensors cannot do; others are tried."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was_disabled


def _make_fake(model: torch.nn.Module) -> None:
    """Give every tensor of a skeleton a fake one of its shape; ties stay."""
    made: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in made:
                empty = torch.empty_like(parameter, device="cpu")
                made[id(parameter)] = torch.nn.Parameter(
                    empty, requires_grad=parameter.requires_grad
                )
            module._parameters[name] = made[id(parameter)]
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_meta:
                module._buffers[name] = torch.empty_like(buffer, device="cpu")


def _watch(
    subject: _Subject, source: ModelSource, shape: tuple[int, int], with_labels: bool
) -> Watched:
    """Watch a run with the largest list of blocks that takes part in it."""
    model = subject.model
    lists = _lists_of_blocks(model) if source.factory is None else [layers_of(model)]
    if not lists:
        msg = f"{source.id} has no list of blocks to cut between"
        raise ModelError(msg)
    found = []
    for named in lists:
        with subject.mode:
            rows = make_rows(
                source, shape, dtype=subject.dtype, device=_CPU, token=subject.token
            )
            seen = observe(model, named, partial(_run, model, rows, with_labels))
        paths, blocks = zip(*named, strict=True)
        watched = Watched(
            model=model, paths=paths, blocks=blocks, seen=seen, dtype=subject.dtype
        )
        if _is_trained(seen):
            return watched
        if seen.calls:
            found.append(watched)
    if not found:
        msg = f"{source.id} calls none of its lists of modules"
        raise ModelError(msg)
    return found[0]


def _run(
    model: torch.nn.Module, rows: Mapping[str, torch.Tensor], with_labels: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One forward; returns the logits and what the model adds to its loss."""
    given = {k: x for k, x in rows.items() if with_labels or k != "labels"}
    with contextlib.nullcontext() if computes_loss(model) else NoCrossEntropy():
        output = model(**given, use_cache=False)
    return logits_of(output), loss_of(output) if with_labels else None


def _is_trained(seen: Observation) -> bool:
    """Whether gradients flow through the blocks."""
    return any(x.tensor.requires_grad for call in seen.calls for x in call.arguments)


def _lists_of_blocks(
    model: torch.nn.Module,
) -> Sequence[Sequence[tuple[str, torch.nn.Module]]]:
    """The outermost module lists, as paths and modules, the largest first."""
    found: dict[str, torch.nn.ModuleList] = {}
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in found)
        if isinstance(module, torch.nn.ModuleList) and len(module) and not inside:
            found[name] = module
    size = {
        name: sum(p.numel() for p in blocks.parameters())
        for name, blocks in found.items()
    }
    return [
        [(f"{name}.{i}", block) for i, block in enumerate(found[name])]
        for name in sorted(size, key=size.__getitem__)[::-1]
    ]
