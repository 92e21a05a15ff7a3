"""The parameters of one stage: read from safetensors, or drawn at random.

Only the tensors of the stage's own layers are ever opened. Names are mapped
from the checkpoint to the model by transformers' own rules (a checkpoint may
store experts one by one that the model keeps as one tensor).
"""

import contextlib
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from planner.chain.layers import Chain, Layer
from planner.chain.source import ModelSource, find_file
from planner.chain.stage_module import StageModule
from planner.chain.stored_names import as_stored, assign, renamer
from planner.errors import ModelError

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_NAMED = 8  # missing parameters that a message lists


def has_weights(source: ModelSource) -> bool:
    """Whether the model comes with weights in safetensors.

    Args:
        source: The model.

    Returns:
        True if there is a file to load from.
    """
    return bool(find_file(source, _INDEX) or find_file(source, _SINGLE))


def load_weights(stage: StageModule, source: ModelSource, device: torch.device) -> None:
    """Fill a stage's parameters from the model's checkpoint.

    Args:
        stage: The stage; its parameters are on meta.
        source: The model.
        device: Where the parameters go.

    Raises:
        ModelError: There is no checkpoint, it is damaged, or it lacks one of the
            parameters.
    """
    learned = {n: p.requires_grad for n, p in stage.owned_parameters().items()}
    _forget(stage)
    try:
        _read(stage, _tensor_files(source))
    except SafetensorError as error:
        msg = f"the weights of {source.id} are damaged ({error}); fetch them again"
        raise ModelError(msg) from error
    settle_weights(stage, device)
    for name, parameter in stage.owned_parameters().items():
        parameter.requires_grad_(learned[name])
    missing = [n for n, p in stage.owned_parameters().items() if p.is_meta]
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        msg = (
            f"the checkpoint of {source.id} does not hold {len(missing)} parameters "
            f"that the model needs, such as {', '.join(missing[:_NAMED])}{more}; it "
            "was made for another architecture, or train from random weights with "
            "--init random"
        )
        raise ModelError(msg)


def _forget(stage: StageModule) -> None:
    """Send the stage's parameters to meta, so that one not loaded is noticed."""
    for names in (layer.parameters for layer in stage.layers):
        for name in names:
            parameter = stage.model.get_parameter(name)
            _set_parameter(
                stage.model, name, torch.nn.Parameter(parameter.detach().to("meta"))
            )


def _read(stage: StageModule, files: dict[str, Path]) -> None:
    with contextlib.ExitStack() as opened:
        handles: dict[Path, Any] = {}
        state: dict[str, Any] = {}
        for key in _wanted_keys(stage, files):
            path = files[key]
            if path not in handles:
                handles[path] = opened.enter_context(safe_open(path, framework="pt"))
            state[key] = handles[path].get_slice(key)
        assign(stage.model, state)


def draw_weights(stage: StageModule, device: torch.device, *, seed: int) -> None:
    """Draw a stage's parameters at random, the same under every cut.

    Every module has a seed of its own, made from its path, so its weights do not
    depend on what else is on the stage.

    Args:
        stage: The stage; its parameters are on meta.
        device: Where the parameters go.
        seed: Of the whole run.
    """
    model: Any = stage.model
    paths = _modules_to_draw(stage)
    for path in paths:
        _fill_empty(model.get_submodule(path))
    for path in paths:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed * 1_000_003 + zlib.crc32(path.encode()))
            _initializer(model, path)(model.get_submodule(path))
    settle_weights(stage, device)


def empty_weights(stage: StageModule, device: torch.device) -> None:
    """Give a stage's parameters memory, to be filled by somebody else.

    Args:
        stage: The stage; its parameters are on meta.
        device: Where the parameters go.
    """
    model: Any = stage.model
    for path in _modules_to_draw(stage):
        _fill_empty(model.get_submodule(path))
    settle_weights(stage, device)


def _initializer(model: torch.nn.Module, path: str) -> Any:
    """How the innermost model around a module draws its weights.

    A model may hold others, each with rules and a configuration of its own.
    """
    names = path.split(".")
    for length in range(len(names), -1, -1):
        around: Any = model.get_submodule(".".join(names[:length]))
        if hasattr(around, "_init_weights"):
            return around._init_weights
    return lambda module: None


def _modules_to_draw(stage: StageModule) -> list[str]:
    """Paths of all modules with parameters of the stage, children first.

    A tied parameter is drawn as part of the module that names it first.
    """
    owned = {name for layer in stage.layers for name in layer.parameters}
    paths = [
        f"{root}.{path}" if path else root
        for layer in stage.layers
        for root in layer.modules
        for path, _ in _named_modules(stage.model, layer, root)
    ]
    paths += [n[0].rpartition(".")[0] for n in stage.chain.tied if owned & set(n)]
    return list(dict.fromkeys(reversed(paths)))


def _named_modules(
    model: torch.nn.Module, layer: Layer, root: str
) -> Iterable[tuple[str, torch.nn.Module]]:
    module = model.get_submodule(root)
    return module.named_modules() if layer.name == root else [("", module)]


def _fill_empty(module: torch.nn.Module) -> None:
    """Give a module's own parameters memory."""
    for name, parameter in list(module.named_parameters(recurse=False)):
        if parameter.is_meta:
            real = torch.zeros_like(parameter, device="cpu")
            learned = parameter.requires_grad
            setattr(module, name, torch.nn.Parameter(real, requires_grad=learned))


def settle_weights(stage: StageModule, device: torch.device) -> None:
    """Move the stage's tensors to the device, all other parameters to meta.

    Aliases of a tied parameter that the stage holds become one parameter.

    Args:
        stage: The stage; its parameters are real.
        device: Where they go.
    """
    model = stage.model
    owned = {name for layer in stage.layers for name in layer.parameters}
    groups = [*stage.chain.tied, *((n,) for n in owned - set(stage.chain.canonical))]
    for names in groups:
        real = [n for n in names if not model.get_parameter(n).is_meta]
        held = [n for n in names if n in owned]
        if not real or not held:
            continue
        first = model.get_parameter(real[0])
        tensor = first.detach().to(device)
        # What the model froze (sinusoidal positions) stays frozen.
        parameter = torch.nn.Parameter(tensor, requires_grad=first.requires_grad)
        for name in held:
            _set_parameter(model, name, parameter)
    for name, parameter in list(model.named_parameters(remove_duplicate=False)):
        if name in owned:
            continue
        if name in stage.loose:
            # Code between the blocks may read it; what it computes is replaced.
            zero = torch.zeros((), dtype=parameter.dtype, device=device)
            zeros = zero.expand(parameter.shape)
            _set_parameter(model, name, torch.nn.Parameter(zeros, requires_grad=False))
        elif not parameter.is_meta:
            _set_parameter(model, name, torch.nn.Parameter(parameter.to("meta")))
    for module in model.modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            module._buffers[name] = buffer.to(device)


def _set_parameter(
    model: torch.nn.Module, name: str, parameter: torch.nn.Parameter
) -> None:
    path, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(path), leaf, parameter)


def _tensor_files(source: ModelSource) -> dict[str, Path]:
    """In which file each tensor of the checkpoint lies."""
    index = find_file(source, _INDEX)
    if index is not None:
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        except (ValueError, KeyError, TypeError) as error:
            msg = f"{index} does not say in which file each tensor lies"
            raise ModelError(msg) from error
        return {key: _shard(source, name) for key, name in weight_map.items()}
    single = find_file(source, _SINGLE)
    if single is None:
        msg = (
            f"{source.id} has no weights in safetensors; convert them, or train from "
            "random weights with --init random"
        )
        raise ModelError(msg)
    with safe_open(single, framework="pt") as file:
        return dict.fromkeys(file.keys(), single)


def _shard(source: ModelSource, name: str) -> Path:
    path = find_file(source, name)
    if path is None:
        msg = f"{source.id} lacks the weight file {name} that its index names"
        raise ModelError(msg)
    return path


def _wanted_keys(stage: StageModule, files: dict[str, Path]) -> list[str]:
    """Keys of the checkpoint that fill a tensor of the stage."""
    tied = {n: names for names in stage.chain.tied for n in names}
    modules = {m for layer in stage.layers for m in layer.modules}
    blocks = tuple(f"{x.name}." for x in stage.layers if x.name in modules)
    owned = {name for layer in stage.layers for name in layer.parameters}

    def wanted(name: str) -> bool:
        aliases = tied.get(name, (name,))
        return name.startswith(blocks) or any(alias in owned for alias in aliases)

    rename = renamer(stage.model)
    return [key for key in files if wanted(rename(key))]


def saved_tensors(stage: StageModule, owned: set[int]) -> dict[str, torch.Tensor]:
    """A stage's tensors under the names that a checkpoint uses.

    Args:
        stage: The stage.
        owned: `id` of each parameter that this stage saves; a tied one is saved
            by one stage only.

    Returns:
        Name in the checkpoint to tensor on the CPU.
    """
    state = {
        name: parameter.detach()
        for name, parameter in stage.owned_parameters().items()
        if id(parameter) in owned
    }
    state |= persistent_buffers(stage)
    stored = as_stored(stage.model, state)
    return {name: tensor.contiguous().cpu() for name, tensor in stored.items()}


def persistent_buffers(stage: StageModule) -> dict[str, torch.Tensor]:
    """The buffers of a stage that a checkpoint keeps.

    Args:
        stage: The stage.

    Returns:
        Name to buffer of the stage's layers; those of no layer belong to the first
        stage.
    """
    saved = stage.model.state_dict()
    buffers = {n: b for n, b in stage.model.named_buffers() if n in saved}
    homes = {name: _home(stage.chain, name) for name in buffers}
    names = {layer.name for layer in stage.layers}
    return {
        name: buffer
        for name, buffer in buffers.items()
        if homes[name] in names or (homes[name] is None and stage.is_first)
    }


def _home(chain: Chain, name: str) -> str | None:
    """The layer that a buffer belongs to, by the module that holds it."""
    path = name.rpartition(".")[0]
    for layer in chain.layers:
        for root in layer.modules:
            if path == root or (layer.name == root and path.startswith(f"{root}.")):
                return layer.name
    return None
