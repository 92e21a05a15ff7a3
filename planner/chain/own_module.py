"""A module of the user's own, `package.module:factory`, in place of a model.

The factory returns any `torch.nn.Module` that calls its children one after the
other. Its children with parameters are the layers; those of a `ModuleList` and of
a module that only wraps another one count by themselves. The factory is called in
every process with the same seed; what it makes is what is trained.

A module may bring two methods of its own:

    sample_inputs()         a dictionary of tensors with one row for each sample:
                            the arguments of `forward`, and maybe `labels`
    loss(output[, labels])  the mean loss of the rows that `forward` was given

Without the first it is called with token ids, shape (batch, seq_len). Without the
second it returns logits, and the loss is that of the next token.
"""

import contextlib
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from planner.errors import ModelError

_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_SEED = 0
_CONTAINERS = (torch.nn.ModuleList, torch.nn.Sequential)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnConfig:
    """What is known of a user's module, where transformers has a configuration.

    Attributes:
        vocab_size: Tokens of its first embedding; 0 if it has none.
        model_type: Always `module`.
    """

    vocab_size: int
    model_type: str = "module"

    def get_text_config(self, decoder: bool = True) -> "OwnConfig":
        """The part about text, as configurations of transformers have it.

        Args:
            decoder: Means nothing here.

        Returns:
            The same.
        """
        return self


def is_factory_name(model_id: str) -> bool:
    """Whether the user names a factory.

    Args:
        model_id: What stands for MODEL.

    Returns:
        True for `package.module:factory` that is no folder.
    """
    return bool(_NAME.fullmatch(model_id)) and not Path(model_id).exists()


def import_factory(model_id: str) -> Callable[[], Any]:
    """Import a factory; modules in the current folder count.

    Args:
        model_id: `package.module:factory`.

    Returns:
        The factory.

    Raises:
        ModelError: There is no such module, it fails, or it has no such function.
    """
    module_name, _, name = model_id.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            msg = (
                f"there is no Python module {module_name} in this folder or among "
                "the installed packages"
            )
        else:
            msg = f"{module_name} imports {error.name}, which is not installed"
        raise ModelError(msg) from error
    except Exception as error:  # the user's code may raise anything
        msg = f"{module_name} cannot be imported: {_reason(error)}"
        raise ModelError(msg) from error
    factory = getattr(module, name, None)
    if not callable(factory):
        msg = f"{module_name} has no function {name}"
        raise ModelError(msg)
    found: Callable[[], Any] = factory
    return found


def make_module(
    model_id: str, factory: Callable[[], Any], dtype: torch.dtype
) -> torch.nn.Module:
    """Call a factory.

    Args:
        model_id: For messages.
        factory: The user's.
        dtype: Of the parameters.

    Returns:
        The module in training mode; the same numbers at every call.

    Raises:
        ModelError: The factory fails, or it returns something else.
    """
    with _seeded(dtype):
        try:
            module = factory()
        except Exception as error:  # the user's code may raise anything
            msg = f"{model_id} fails: {_reason(error)}"
            raise ModelError(msg) from error
    if not isinstance(module, torch.nn.Module):
        msg = f"{model_id} returns a {type(module).__name__}, not a torch.nn.Module"
        raise ModelError(msg)
    if not any(True for _ in module.parameters()):
        msg = f"{model_id} returns a module without parameters"
        raise ModelError(msg)
    if any(p.is_floating_point() and p.dtype != dtype for p in module.parameters()):
        module.to(dtype)
    return _adapted(module.train())


@contextlib.contextmanager
def _seeded(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            yield
    finally:
        torch.set_default_dtype(before)


def _adapted(module: torch.nn.Module) -> torch.nn.Module:
    """Let a module be called as transformers' models are; its names stay."""
    kind: Any = type(module)

    def forward(
        self: Any, input_ids: Any = None, labels: Any = None, **inputs: Any
    ) -> SimpleNamespace:
        known = inspect.signature(kind.forward).parameters
        inputs = {key: value for key, value in inputs.items() if key in known}
        given = () if input_ids is None else (input_ids,)
        output = kind.forward(self, *given, **inputs)
        return SimpleNamespace(logits=output, loss=_own_loss(self, output, labels))

    module.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    return module


def computes_loss(module: torch.nn.Module) -> bool:
    """Whether a module brings a loss of its own.

    Args:
        module: From `make_module`.

    Returns:
        True if it has a method `loss`.
    """
    return callable(getattr(module, "loss", None))


def describe_module(module: torch.nn.Module) -> OwnConfig:
    """What a module says about its input.

    Args:
        module: The user's.

    Returns:
        Its vocabulary.
    """
    embeddings = (m for m in module.modules() if isinstance(m, torch.nn.Embedding))
    first = next(embeddings, None)
    return OwnConfig(vocab_size=0 if first is None else first.num_embeddings)


def layers_of(module: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """The children that are layers, in the order they were given.

    Args:
        module: The user's.

    Returns:
        Path and module of each; those without parameters run with their
        neighbours.
    """
    return [
        (n, m) for n, m in _children(module, "") if any(True for _ in m.parameters())
    ]


def _children(
    module: torch.nn.Module, prefix: str
) -> Iterator[tuple[str, torch.nn.Module]]:
    children = list(module.named_children())
    only = children[0][1] if len(children) == 1 else None
    for name, child in children:
        path = f"{prefix}{name}"
        if isinstance(child, torch.nn.ModuleList) or child is only:
            inner = list(_children(child, f"{path}."))
            is_list = isinstance(child, _CONTAINERS)
            yield from inner if is_list and inner else [(path, child)]
        else:
            yield path, child


def sample_rows(
    module: torch.nn.Module, model_id: str
) -> dict[str, torch.Tensor] | None:
    """The samples that a module brings.

    Args:
        module: The user's.
        model_id: For messages.

    Returns:
        Name to tensor, all with the same number of rows; None if it brings none.

    Raises:
        ModelError: They are no such tensors.
    """
    make: Any = getattr(module, "sample_inputs", None)
    if make is None:
        return None
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            rows = make()
    except Exception as error:  # the user's code may raise anything
        msg = f"sample_inputs() of {model_id} fails: {_reason(error)}"
        raise ModelError(msg) from error
    tensors = isinstance(rows, dict) and all(
        isinstance(x, torch.Tensor) and x.dim() for x in rows.values()
    )
    if not tensors or not rows or len({len(x) for x in rows.values()}) != 1:
        msg = (
            f"sample_inputs() of {model_id} must return a dictionary of tensors with "
            "the same number of rows, the arguments of forward and maybe labels"
        )
        raise ModelError(msg)
    return dict(rows)


def _own_loss(
    module: torch.nn.Module, output: torch.Tensor, labels: torch.Tensor | None
) -> torch.Tensor | None:
    """The loss that a module computes itself, if it does."""
    loss: Any = getattr(module, "loss", None)
    if loss is None:
        return None
    takes_labels = len(inspect.signature(loss).parameters) > 1
    if takes_labels and labels is None:
        return None
    found: torch.Tensor = loss(output, labels) if takes_labels else loss(output)
    return found


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
