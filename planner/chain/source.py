"""Where a model comes from: a hub id or a folder in Hugging Face format.

Only configuration and small files are read here; weights are `weights`' work.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging
from transformers.utils.hub import cached_file

from planner.chain.hub import hub_is_reachable
from planner.chain.own_module import (
    computes_loss,
    describe_module,
    import_factory,
    is_factory_name,
    make_module,
    sample_rows,
)
from planner.chain.refusals import (
    check_folder,
    check_sizes,
    why_no_config,
    why_not_built,
)
from planner.errors import ModelError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model that can be built: its configuration and how to read it.

    Attributes:
        id: Hub id, folder or `package.module:factory`, as the user gave it.
        config: The configuration of transformers.
        revision: Commit or branch of the hub, if any.
        trust_remote_code: Whether the model's own code may run.
        factory: Makes a module of the user's own; None for a model of transformers.
        rows: The inputs that such a module brings, by name; None for token ids.
    """

    id: str
    config: Any
    revision: str | None = None
    trust_remote_code: bool = False
    factory: Callable[[], Any] | None = None
    rows: Mapping[str, torch.Tensor] | None = None

    @property
    def folder(self) -> Path | None:
        """The local folder, if the model is one."""
        path = Path(self.id)
        return path if path.is_dir() else None


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers' progress bars and advice off the terminal.

    Yields:
        Nothing.
    """
    verbosity = logging.get_verbosity()
    had_bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def open_source(
    model_id: str, *, revision: str | None = None, trust_remote_code: bool = False
) -> ModelSource:
    """Find a model and read its configuration.

    Args:
        model_id: Hub id or folder.
        revision: Commit or branch of the hub.
        trust_remote_code: Whether the model's own code may run.

    Returns:
        The source.

    Raises:
        ModelError: There is no such model, it is not a causal language model, or
            it needs its own code and that is not allowed.
    """
    if is_factory_name(model_id):
        return _open_own(model_id)
    check_folder(model_id)
    try:
        config = AutoConfig.from_pretrained(
            model_id,
            revision=revision,
            trust_remote_code=trust_remote_code,
            local_files_only=not Path(model_id).is_dir() and not hub_is_reachable(),
        )
    except Exception as error:  # a configuration can be wrong in any way
        raise ModelError(why_no_config(model_id, error, revision)) from error
    _check_it_can_be_built(model_id, config, trust_remote_code)
    check_sizes(model_id, config)
    return ModelSource(
        id=model_id,
        config=config,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )


def _open_own(model_id: str) -> ModelSource:
    factory = import_factory(model_id)
    module = make_module(model_id, factory, torch.float32)
    config = describe_module(module)
    rows = sample_rows(module, model_id)
    if rows is not None and "input_ids" in rows and not computes_loss(module):
        rows = None  # any token ids do
    if rows is None and not config.vocab_size:
        msg = (
            f"the module of {model_id} has no embedding, so it takes no token ids; "
            "give it a method sample_inputs() that returns its inputs"
        )
        raise ModelError(msg)
    if rows is not None and not computes_loss(module):
        msg = (
            f"the module of {model_id} is not trained on tokens; give it a method "
            "loss(output, labels) that returns the mean of the rows"
        )
        raise ModelError(msg)
    return ModelSource(id=model_id, config=config, factory=factory, rows=rows)


def build_model(
    source: ModelSource, *, dtype: torch.dtype, attention: str
) -> torch.nn.Module:
    """Construct the model from its configuration, weights as its code makes them.

    Args:
        source: The model.
        dtype: Of its parameters.
        attention: Attention implementation of transformers, such as `sdpa`; `auto`
            leaves the choice to it.

    Returns:
        The model, in training mode.

    Raises:
        ModelError: transformers cannot build it.
    """
    if source.factory is not None:
        return make_module(source.id, source.factory, dtype)
    try:
        model: torch.nn.Module = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            copy.deepcopy(source.config),  # it is written to
            dtype=dtype,
            attn_implementation=None if attention == "auto" else attention,
            trust_remote_code=source.trust_remote_code,
        )
    except Exception as error:  # so can what it is built from
        raise ModelError(why_not_built(source.id, error, attention)) from error
    _recompute_nothing(model)
    return model.train()


def _recompute_nothing(model: torch.nn.Module) -> None:
    """Undo a recompute that the model's code or configuration asks for.

    What is recomputed is the plan's choice, and the old way of doing it
    (re-entrant) breaks on every stage but the first.
    """
    for module in model.modules():
        if getattr(module, "gradient_checkpointing", False) is True:
            module.gradient_checkpointing = False  # type: ignore[assignment]


def open_tokenizer(source: ModelSource) -> Any | None:
    """Load the model's tokenizer.

    Args:
        source: The model.

    Returns:
        The tokenizer of transformers, or None if the model brings none.
    """
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
    if not any(find_file(source, name) for name in names):
        return None
    return AutoTokenizer.from_pretrained(
        source.id,
        revision=source.revision,
        trust_remote_code=source.trust_remote_code,
    )


def find_file(source: ModelSource, name: str) -> Path | None:
    """Locate one file of the model, fetching it from the hub if need be.

    Args:
        source: The model.
        name: File name, such as `model.safetensors`.

    Returns:
        Its local path, or None if the model has no such file.
    """
    folder = source.folder
    if source.factory is not None:
        return None
    if folder is not None:
        return folder / name if (folder / name).is_file() else None
    try:
        found = cached_file(
            source.id,
            name,
            revision=source.revision,
            local_files_only=not hub_is_reachable(),
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
    except OSError:
        return None
    return Path(found) if found else None


def _check_it_can_be_built(model_id: str, config: Any, trust_remote_code: bool) -> None:
    """Refuse what is no causal language model to transformers."""
    if type(config) in AutoModelForCausalLM._model_mapping:
        return
    if "AutoModelForCausalLM" not in (getattr(config, "auto_map", None) or {}):
        msg = (
            f"{model_id} is a {config.model_type} model, which transformers cannot "
            "build as a causal language model; give one that predicts the next token"
        )
        raise ModelError(msg)
    if not trust_remote_code:
        msg = (
            f"{model_id} brings its own modelling code; read it, then allow it "
            "with --trust-remote-code"
        )
        raise ModelError(msg)
