"""How a checkpoint names and stores what a model keeps under other names.

The rules are transformers' own. Its version 5 has a table of conversions (experts
stored one by one become one tensor); version 4 stores every parameter by itself,
without the prefix of the inner model or as part of a larger model whose class lists
what to replace. Nothing else in this package asks which of the two is installed.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

try:
    from transformers import core_model_loading as conversion
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.modeling_utils import LoadStateDictConfig
except ImportError:
    conversion = None  # type: ignore[assignment]


def renamer(model: Any) -> Callable[[str], str]:
    """From a key of the checkpoint to a parameter name of the model.

    Args:
        model: Of transformers.

    Returns:
        The function; a key that fits nothing comes back as some unknown name.
    """
    prefix = model.base_model_prefix
    known = model.state_dict()
    if conversion is None:
        replaced = _replacer(model, backwards=False)

        def rename(key: str) -> str:
            names = (key, replaced(key))
            return next((x for x in names if x in known), f"{prefix}.{key}")

        return rename
    mapping = get_model_conversion_mapping(model)
    renamings = [x for x in mapping if isinstance(x, conversion.WeightRenaming)]
    converters = [x for x in mapping if isinstance(x, conversion.WeightConverter)]
    return lambda key: str(
        conversion.rename_source_key(key, renamings, converters, prefix, known)[0]
    )


def assign(model: Any, state: Mapping[str, Any]) -> None:
    """Put tensors of a checkpoint into the model under its own names.

    Args:
        model: Of transformers; what it has no place for, by name or shape, is left
            out.
        state: Key of the checkpoint to tensor, or slice of a file, which is read.
    """
    if conversion is not None:
        mapping: Any = get_model_conversion_mapping(model)
        config = LoadStateDictConfig(weight_mapping=mapping, device_map={"": "cpu"})
        conversion.convert_and_load_state_dict_in_model(model, dict(state), config)
        return
    rename, known = renamer(model), model.state_dict()
    for key, tensor in state.items():
        name = rename(key)
        if name not in known:
            continue
        path, _, leaf = name.rpartition(".")
        module = model.get_submodule(path)
        like = getattr(module, leaf)
        value = tensor[...].to(like.dtype)
        if value.shape != like.shape:
            continue
        if leaf in module._buffers:
            module._buffers[leaf] = value
        else:
            setattr(module, leaf, torch.nn.Parameter(value))


def as_stored(model: Any, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Name tensors as the model's `save_pretrained` would.

    Args:
        model: Of transformers, or the user's own.
        state: Parameter or buffer name to tensor.

    Returns:
        Name in the checkpoint to tensor.
    """
    if not hasattr(model, "base_model_prefix"):
        return state
    if conversion is None:
        replaced = _replacer(model, backwards=True)
        return {replaced(name): tensor for name, tensor in state.items()}
    stored: dict[str, torch.Tensor] = conversion.revert_weight_conversion(model, state)
    return stored


def _replacer(model: Any, *, backwards: bool) -> Callable[[str], str]:
    """What transformers 4 replaces in names: from a checkpoint, or backwards."""
    mapping: Mapping[str, str] = getattr(model, "_checkpoint_conversion_mapping", {})
    pairs = list(mapping.items())
    if backwards:
        # A pattern as text: without its anchor and its look-ahead.
        pairs = [(b, re.sub(r"\(.*\)", "", a.lstrip("^"))) for a, b in pairs]

    def replace(name: str) -> str:
        for pattern, replacement in pairs:
            found, count = re.subn(pattern, replacement, name)
            if count:
                return found
        return name

    return replace
