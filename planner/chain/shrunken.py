"""The small copy of a model that is cut and compared in its place.

A model is named by a hub id, a folder, or a type of transformers such as `llama`;
of the first two only the configuration is read, never a weight.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from planner.chain.foreign_error import one_line
from planner.chain.skeleton import build_skeleton
from planner.chain.source import ModelSource, open_source
from planner.chain.tiny import shrink_config, tiny_config
from planner.chain.tiny.rules import VOCAB
from planner.errors import ModelError


def open_shrunken(
    model: str, *, revision: str | None = None, trust_remote_code: bool = False
) -> ModelSource:
    """Find a model and describe a small copy of it.

    Args:
        model: Hub id, folder, or a type of transformers; a folder comes first.
        revision: Commit or branch of the hub.
        trust_remote_code: Whether the model's own code may run.

    Returns:
        The copy. That of a type adds its balance loss if it has one; that of a
        model does as its configuration says.

    Raises:
        ModelError: There is no such model, or it has no small copy.
    """
    if not Path(model).exists() and model in CONFIG_MAPPING:
        if model not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            msg = (
                f"{model} is a type that transformers cannot build as a causal "
                "language model; give one that predicts the next token"
            )
            raise ModelError(msg)
        config = _small(model, lambda: tiny_config(model))
        if hasattr(config, "output_router_logits"):
            config.output_router_logits = True
        return ModelSource(id=model, config=config)
    return shrink_source(
        open_source(model, revision=revision, trust_remote_code=trust_remote_code)
    )


def shrink_source(source: ModelSource) -> ModelSource:
    """Describe a small copy of a model.

    Args:
        source: The model.

    Returns:
        The copy: same id, class and code, a small configuration.

    Raises:
        ModelError: Its configuration cannot be made small; the message says why.
    """
    if source.factory is not None:
        return source  # the user's own module is taken as it is
    return ModelSource(
        id=source.id,
        config=_small(source.id, lambda: shrink_config(source.config)),
        revision=source.revision,
        trust_remote_code=source.trust_remote_code,
    )


def _small(name: str, make: Callable[[], Any]) -> Any:
    """A small configuration, or why there is none."""
    try:
        return make()
    except ModelError:
        raise
    except Exception as error:  # a configuration's own code may raise anything
        msg = f"the configuration of {name} cannot be shrunk: {one_line(error)}"
        raise ModelError(msg) from error


def input_settings(source: ModelSource, *, attention: str) -> dict[str, Any]:
    """Which rows a small copy can be given.

    Args:
        source: The copy.
        attention: Attention implementation of transformers.

    Returns:
        `vocab_size`, and `masked`: whether it takes an attention mask.
    """
    text = source.config.get_text_config(decoder=True)
    model = build_skeleton(source, dtype=torch.float32, attention=attention)
    taken = inspect.signature(model.forward).parameters
    return {
        "vocab_size": getattr(text, "vocab_size", VOCAB),
        "masked": "attention_mask" in taken
        or any(x.kind is x.VAR_KEYWORD for x in taken.values()),
    }
