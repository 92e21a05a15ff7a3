"""A tiny configuration of the same architecture as a large one."""

import copy
import inspect
from collections.abc import Mapping
from typing import Any

from transformers import AutoConfig, PretrainedConfig

from planner.chain.tiny.exceptions import EXCEPTIONS, START_FIELDS
from planner.chain.tiny.layer_choice import MIN_LAYERS, choose_layers
from planner.chain.tiny.rules import (
    HEAD_DIM,
    POSITIONS,
    VOCAB,
    Facts,
    shrink_field,
)
from planner.errors import ModelError

_NUM_LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "decoder_layers",
    "encoder_layers",
    "num_decoder_layers",
    "num_encoder_layers",
    "num_blocks",
    "depth",
)


def tiny_config(model_type: str) -> Any:
    """A tiny configuration of an architecture that transformers knows.

    Args:
        model_type: Such as `llama`; a key of transformers' table of causal
            language models.

    Returns:
        The configuration.

    Raises:
        ModelError: transformers has no such type.
    """
    try:
        config = AutoConfig.for_model(model_type, **START_FIELDS.get(model_type, {}))
    except ValueError as error:
        msg = f"transformers knows no model type {model_type}"
        raise ModelError(msg) from error
    return shrink_config(config)


def shrink_config(config: Any) -> Any:
    """The same architecture, tiny.

    Args:
        config: The configuration of transformers; it stays as it is.

    Returns:
        Another of the same class: 64 channels, two layers of each kind, 256
        tokens, no dropout.
    """
    fields = _fields(config)
    facts = Facts(
        hidden=_number(config, "hidden_size", 64),
        heads=_number(config, "num_attention_heads", 4),
    )
    choice = choose_layers(fields, _number(config, "num_hidden_layers", 0))
    ids = _token_ids(fields)
    tiny: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, PretrainedConfig):
            tiny[name] = shrink_config(value)
        elif name in ids:
            tiny[name] = ids[name]
        elif name in choice.fields:
            tiny[name] = _each(name, choice.fields[name], facts)
        elif name in _NUM_LAYERS and isinstance(value, int):
            tiny[name] = len(choice.kept) if value == choice.num_layers else MIN_LAYERS
        elif name in ("rope_parameters", "rope_scaling") and value:
            tiny[name] = _shrink_rope(value, HEAD_DIM)
        else:
            tiny[name] = shrink_field(name, value, facts)
    if tiny.get("is_decoder") is False and not getattr(
        config, "is_encoder_decoder", False
    ):
        tiny["is_decoder"] = True
    tiny |= EXCEPTIONS.get(config.model_type, lambda fields: {})(tiny)
    return type(config)(**tiny)


def _fields(config: Any) -> dict[str, Any]:
    """What the constructor takes, as the configuration has it."""
    names = set(inspect.signature(type(config)).parameters)
    names |= {"is_decoder", "tie_word_embeddings"}
    return {
        name: copy.deepcopy(value)
        for name, value in vars(config).items()
        if name in names and not name.startswith("_") and name not in _LEFT_OUT
    }


# Settings of transformers itself, not of the architecture.
_LEFT_OUT = frozenset(
    {"dtype", "torch_dtype", "architectures", "transformers_version", "id2label", "label2id"}
)


def _number(config: Any, name: str, default: int) -> int:
    value = getattr(config, name, None)
    return value if isinstance(value, int) else default


def _each(name: str, value: Any, facts: Facts) -> Any:
    if isinstance(value, list):
        return [shrink_field(name, x, facts) for x in value]
    return value


def _token_ids(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Ids of special tokens inside the tiny vocabulary, different ones apart."""
    low = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    names = [n for n in fields if n.endswith(("token_id", "token_index"))]
    ids: dict[str, Any] = {}
    for name in names:
        value = fields[name]
        tiny = low.get(name, VOCAB - 1 - len(ids))
        if isinstance(value, list):
            ids[name] = [tiny]
        elif isinstance(value, int) and value >= 0:
            ids[name] = tiny
        else:
            ids[name] = value
    return ids


def _shrink_rope(rope: Mapping[str, Any], head_dim: int) -> dict[str, Any]:
    """Rotary settings for a tiny head; also when there is one set a layer type."""
    tiny: dict[str, Any] = {}
    for key, value in rope.items():
        if isinstance(value, Mapping):
            tiny[key] = _shrink_rope(value, head_dim)
        elif key == "original_max_position_embeddings":
            tiny[key] = min(value, POSITIONS // 2)
        elif key in ("short_factor", "long_factor"):
            share = float(rope.get("partial_rotary_factor", 1.0))
            tiny[key] = list(value)[: int(head_dim * share) // 2]
        elif key == "mrope_section":
            share = float(rope.get("partial_rotary_factor", 1.0))
            half = int(head_dim * share) // 2
            third = half // len(value)
            tiny[key] = [half - third * (len(value) - 1)] + [third] * (len(value) - 1)
        else:
            tiny[key] = value
    return tiny
