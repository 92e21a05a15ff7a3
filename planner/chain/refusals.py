"""Why a model cannot be read or built: one line, with the next step."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from planner.chain.hub import hub_is_reachable
from planner.chain.missing_import import import_advice
from planner.errors import ModelError

# Whole numbers from 1 in every configuration that has them.
_SIZES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size"),
    *("num_attention_heads", "num_key_value_heads", "head_dim"),
    "max_position_embeddings",
)
_MOST_LAYERS = 10_000
# What transformers puts before the reason why a value cannot be.
_PREFIX = re.compile(
    r"(Class validation error for validator|Validation error for field) '\w+':"
    r"\s*(\w+: )?"
)


def check_folder(model_id: str) -> None:
    """Refuse a file, and a folder whose configuration cannot be read.

    Args:
        model_id: As the user gave it; a hub id passes.

    Raises:
        ModelError: It is no folder of a model.
    """
    path = Path(model_id)
    if not model_id.strip():
        msg = "no model is named; give a hub id or a folder"
        raise ModelError(msg)
    if path.is_file():
        kind = " in the GGUF format" if path.suffix == ".gguf" else ""
        msg = f"{model_id} is a file{kind}; give the folder that holds config.json"
        raise ModelError(msg)
    if not path.is_dir():
        return
    config = path / "config.json"
    if not config.is_file():
        msg = (
            f"{model_id} is not a model folder: it has no config.json; give the folder "
            "that from_pretrained loads"
        )
        raise ModelError(msg)
    try:
        content = json.loads(config.read_bytes())
    except OSError as error:
        msg = f"cannot read {config}: {error.strerror}"
        raise ModelError(msg) from error
    except ValueError as error:
        msg = f"{config} is not JSON ({error}); copy the model's own file again"
        raise ModelError(msg) from error
    if not isinstance(content, dict):
        msg = f"{config} holds no settings by name; copy the model's own file again"
        raise ModelError(msg)


def check_sizes(model_id: str, config: Any) -> None:
    """Refuse sizes that no model has, which would fail deep inside it.

    Args:
        model_id: As the user gave it.
        config: The configuration of transformers.

    Raises:
        ModelError: A size is below 1, or two contradict each other.
    """
    config = config.get_text_config(decoder=True)
    settings, own_name = config.to_dict(), config.attribute_map
    sizes = {name: settings.get(own_name.get(name, name)) for name in _SIZES}
    what = _wrong_size({name: x for name, x in sizes.items() if isinstance(x, int)})
    if what:
        name, reason = what
        said = f"{own_name.get(name, name)} {sizes[name]}"
        msg = f"{_config(model_id)} says {said}, {reason}; correct it"
        raise ModelError(msg)


def _wrong_size(sizes: Mapping[str, int]) -> tuple[str, str] | None:
    """Which size cannot be, and why."""
    for name, size in sizes.items():
        if size < 1:
            return name, "which must be at least 1"
    num_heads = sizes.get("num_attention_heads", 0)
    if num_heads % sizes.get("num_key_value_heads", 1):
        return "num_key_value_heads", f"which must divide the {num_heads} heads"
    if sizes.get("num_hidden_layers", 0) > _MOST_LAYERS:
        return "num_hidden_layers", f"more than the {_MOST_LAYERS} that are sensible"
    return None


def why_no_config(model_id: str, error: Exception, revision: str | None) -> str:
    """Say why transformers gave no configuration.

    Args:
        model_id: As the user gave it.
        error: What transformers raised.
        revision: Commit or branch of the hub.

    Returns:
        One line.
    """
    text = str(error)
    if isinstance(error, ImportError):
        return import_advice(model_id, error)
    if "trust_remote_code" in text:
        return (
            f"{model_id} brings its own code; read it, then allow it with "
            "--trust-remote-code"
        )
    if found := re.search(r"model type `(.+?)` but", text):
        return (
            f"transformers {transformers.__version__} knows no model type "
            f"`{found[1]}`, which {model_id} is; pip install -U transformers"
        )
    if Path(model_id).is_dir():
        if "Unrecognized model" in text:
            return f"{_config(model_id)} has no model_type that is known; correct it"
        return f"{_config(model_id)} cannot be used: {_reason(error)}; correct it"
    if model_id.startswith((".", "/", "~")) or model_id.count("/") > 1:
        return f"there is no model folder {model_id}; check the path"
    return _hub_answer(model_id, error, revision)


def why_not_built(model_id: str, error: Exception, attention: str) -> str:
    """Say why transformers cannot build a model from its configuration.

    Args:
        model_id: As the user gave it.
        error: What transformers or the model's own code raised.
        attention: Attention implementation that was asked for.

    Returns:
        One line.
    """
    if isinstance(error, ImportError) and "Attention" in str(error):
        return (
            f"attention '{attention}' cannot be used here ({_reason(error)}); "
            "let the model choose with --attention auto"
        )
    if isinstance(error, ImportError):
        return import_advice(model_id, error)
    if "attn_implementation" in str(error):
        return (
            f"{model_id} has no attention '{attention}' in transformers; "
            "let it choose with --attention auto"
        )
    return (
        f"transformers {transformers.__version__} cannot build {model_id}: "
        f"{_reason(error)}; check {_config(model_id)}, or try another version"
    )


def _hub_answer(model_id: str, error: Exception, revision: str | None) -> str:
    """What went wrong between here and the hub, told by its own kind of error."""
    cause = error if isinstance(error, HfHubHTTPError) else error.__cause__
    page = f"{constants.ENDPOINT}/{model_id}"
    if isinstance(cause, GatedRepoError):
        return (
            f"{model_id} is gated: ask for access at {page}, then log in with "
            "hf auth login"
        )
    if isinstance(cause, RepositoryNotFoundError):
        return (
            f"'{model_id}' is neither a folder here nor a model of the hub; check the "
            "spelling, or log in with hf auth login if it is private"
        )
    if isinstance(cause, RevisionNotFoundError):
        return f"{model_id} has no revision '{revision}'; {page} lists what it has"
    if isinstance(cause, HfHubHTTPError):
        return (
            f"the model hub refused {model_id} with status "
            f"{cause.response.status_code}; log in with hf auth login, or try later"
        )
    if "Unrecognized model" in str(error):
        return (
            f"{model_id} has no config.json with a model_type on the hub; give a model "
            "in the format of transformers"
        )
    if not hub_is_reachable():
        off = " (HF_HUB_OFFLINE is set)" if constants.HF_HUB_OFFLINE else ""
        return (
            f"'{model_id}' is no folder here, and the model hub cannot be "
            f"reached{off}; check the network, or give the path of a local folder"
        )
    return (
        f"'{model_id}' is no folder here, and the model hub did not give it; check the "
        f"spelling and the network, or give a local folder ({_reason(error, 1)})"
    )


def _config(model_id: str) -> str:
    if Path(model_id).is_dir():
        return str(Path(model_id) / "config.json")
    return f"the config.json of {model_id}"


def _reason(error: Exception, num_lines: int = 2) -> str:
    """The start of an error's text; transformers goes on with advice."""
    if isinstance(error, KeyError):
        return f"it knows no {error}"
    lines = _PREFIX.sub("", str(error)).split("\n")[:num_lines]
    text = " ".join(" ".join(lines).split()).split(" Errors: ")[0]
    return text.rstrip(".;") or type(error).__name__
