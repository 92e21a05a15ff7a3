"""A tiny configuration of the same architecture as a large one."""

import copy
import inspect
from collections.abc import Mapping
from typing import Any

from transformers import AutoConfig, PretrainedConfig

from planner.chain.tiny.consistency import agree, shrink_rope
from planner.chain.tiny.exceptions import (
    EXCEPTIONS,
    FINISHED,
    NO_TINY_CONFIG,
    START_FIELDS,
)
from planner.chain.tiny.layer_choice import MIN_LAYERS, LayerChoice, choose_layers
from planner.chain.tiny.rules import HEAD_DIM, VOCAB, Facts, is_width, shrink_field
from planner.errors import ModelError

_NUM_LAYERS = frozenset(
    {
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
        "conf_num_hidden_layers",
    }
)

# Settings of transformers itself, not of the architecture.
_LEFT_OUT = frozenset(
    {
        "dtype",
        "torch_dtype",
        "architectures",
        "transformers_version",
        "id2label",
        "label2id",
        "quantization_config",
    }
)

_NOT_IN_SIGNATURES = ("is_encoder_decoder", "tie_word_embeddings")


def tiny_config(model_type: str) -> Any:
    """A tiny configuration of an architecture that transformers knows.

    Args:
        model_type: Such as `llama`; a key of transformers' table of causal
            language models.

    Returns:
        The configuration.

    Raises:
        ModelError: transformers has no such type, or it is no language model by
            itself.
    """
    if model_type in NO_TINY_CONFIG:
        raise ModelError(NO_TINY_CONFIG[model_type])
    try:
        config = AutoConfig.for_model(model_type, **START_FIELDS.get(model_type, {}))
    except ValueError as error:
        msg = f"transformers knows no model type {model_type}"
        raise ModelError(msg) from error
    return shrink_config(config)


def shrink_config(config: Any, *, only_widths: bool = False) -> Any:
    """The same architecture, tiny.

    Args:
        config: The configuration of transformers; it stays as it is.
        only_widths: Keep all layers, experts and tokens, and make it narrow.

    Returns:
        Another of the same class: 64 channels, and if not only widths are shrunk,
        two layers of each kind, 256 tokens, no dropout.
    """
    fields = _fields(config)
    facts = Facts(
        hidden=_number(config, "hidden_size", 64),
        heads=_number(config, "num_attention_heads", 4),
    )
    by_layer = _settings_by_layer(config)
    num_layers = _number(config, "num_hidden_layers", 0)
    choice = choose_layers(fields, by_layer, num_layers, keep_all=only_widths)
    ids = {} if only_widths else _token_ids(fields)
    tiny: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, PretrainedConfig):
            tiny[name] = shrink_config(value, only_widths=only_widths)
        elif only_widths and not is_width(name):
            tiny[name] = value
        elif name in ids:
            tiny[name] = ids[name]
        elif name in choice.fields:
            tiny[name] = _each(name, choice.fields[name], facts)
        elif name in _NUM_LAYERS and isinstance(value, int):
            tiny[name] = len(choice.kept) if value == choice.num_layers else MIN_LAYERS
        elif name in ("rope_parameters", "rope_scaling") and value:
            tiny[name] = shrink_rope(value, HEAD_DIM)
        else:
            tiny[name] = shrink_field(name, value, facts)
    tiny |= agree(fields, tiny)
    if by_layer:
        tiny["per_layer_config"] = _shrink_by_layer(
            by_layer, choice, fields, tiny, facts
        )
    if tiny.get("is_decoder") is False and not fields.get("is_encoder_decoder"):
        tiny["is_decoder"] = True
    exception = EXCEPTIONS.get(config.model_type)
    if exception:
        tiny |= exception(tiny)
    made = type(config)(**tiny)
    made._name_or_path = config._name_or_path  # where its own code lies
    finish = FINISHED.get(config.model_type)
    if finish:
        finish(made)
    return made


def _fields(config: Any) -> dict[str, Any]:
    """What the constructor takes, as the configuration has it."""
    names = [*inspect.signature(type(config)).parameters, *_NOT_IN_SIGNATURES]
    aliases = getattr(config, "attribute_map", None) or {}
    stored = vars(config)
    if not type(config).__module__.startswith("transformers."):
        # Code of the model's own may read what its constructor does not name.
        known = {aliases.get(name, name) for name in names}
        names += [x for x in stored if not x.startswith("_") and x not in known]
    return {
        name: copy.deepcopy(stored[aliases.get(name, name)])
        for name in names
        if aliases.get(name, name) in stored and name not in _LEFT_OUT
    }


def _number(config: Any, name: str, default: int) -> int:
    aliases = getattr(config, "attribute_map", None) or {}
    value = vars(config).get(aliases.get(name, name))
    return value if isinstance(value, int) else default


def _settings_by_layer(config: Any) -> dict[int, dict[str, Any]]:
    """Fields that single layers have otherwise than the model, by layer."""
    found = config.to_dict().get("per_layer_config") or {}
    return {int(layer): settings for layer, settings in found.items()}


def _shrink_by_layer(
    by_layer: Mapping[int, Mapping[str, Any]],
    choice: LayerChoice,
    fields: Mapping[str, Any],
    tiny: Mapping[str, Any],
    facts: Facts,
) -> dict[int, dict[str, Any]]:
    shrunk: dict[int, dict[str, Any]] = {}
    for new, old in enumerate(choice.kept):
        settings = by_layer.get(old, {})
        heads = settings.get("num_attention_heads", facts.heads)
        own_facts = Facts(hidden=facts.hidden, heads=heads)
        own = {k: shrink_field(k, v, own_facts) for k, v in settings.items()}
        own |= agree({**fields, **settings}, {**tiny, **own})
        if settings:
            shrunk[new] = own
    return shrunk


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
