"""What a run leaves behind: an ordinary Hugging Face folder.

Every process writes its own tensors under the names that the model's own
`save_pretrained` would use; nothing gathers the whole model anywhere. A folder is
written aside and renamed when all of it is there.
"""

import copy
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from planner import artifact
from planner.chain.source import DTYPES, ModelSource, find_file, open_tokenizer
from planner.chain.stage_module import StageModule
from planner.chain.weights import saved_tensors
from planner.plan import Plan


def save_model(
    folder: Path,
    plan: Plan,
    source: ModelSource,
    stages: Sequence[StageModule],
    owned: set[int],
    card: str,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Write the model in Hugging Face format; all devices of a copy call it together.

    Args:
        folder: Where it goes; an older model there is replaced.
        plan: The plan.
        source: The model it was made from.
        stages: Those of this process.
        owned: `id` of each parameter that this process saves.
        card: Text of its model card.
        group: The processes that hold it; None for all.
    """
    rank, num_devices = dist.get_rank(group), dist.get_world_size(group)
    if rank == 0:
        begin_model(folder)
    dist.barrier(group)
    aside = _partial(folder)
    # Stages of one device that share a parameter give it the same name.
    tensors = {k: v for x in stages for k, v in saved_tensors(x, owned).items()}
    part = write_shard(aside, tensors, rank + 1, num_devices)
    parts: list[Any] = [None] * num_devices
    dist.all_gather_object(parts, part, group=group)
    if rank == 0:
        architecture = stages[0].chain.architecture
        finish_model(aside, folder, parts, plan, source, architecture, card)
    dist.barrier(group)


def begin_model(folder: Path) -> Path:
    """Make the folder in which a model is written aside.

    Args:
        folder: Where the model goes.

    Returns:
        The empty folder; what a run that died left behind is gone.
    """
    aside = _partial(folder)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    return aside


def _partial(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.partial")


def write_shard(
    aside: Path, tensors: dict[str, torch.Tensor], number: int, total: int
) -> tuple[str, dict[str, int]]:
    """Write one file of a model.

    Args:
        aside: The folder.
        tensors: By their names in the checkpoint, on the CPU.
        number: Of the file, from 1.
        total: How many files there are.

    Returns:
        The file's name, and the size of each tensor [bytes].
    """
    name = "model.safetensors"
    if total > 1:
        name = f"model-{number:05}-of-{total:05}.safetensors"
    save_file(tensors, aside / name, metadata={"format": "pt"})
    return name, {key: tensor.nbytes for key, tensor in tensors.items()}


def finish_model(
    aside: Path,
    folder: Path,
    parts: list[tuple[str, dict[str, int]]],
    plan: Plan,
    source: ModelSource,
    architecture: str,
    card: str,
) -> None:
    """Write what belongs to a model besides its tensors, and put it in its place.

    Args:
        aside: Holds its tensors.
        folder: Where it goes; an older model there is replaced.
        parts: What `write_shard` returned.
        plan: That it was trained by.
        source: The model it was made from.
        architecture: Name of its class.
        card: Text of its model card.
    """
    if len(parts) > 1:
        artifact.save(_index(parts), aside / "model.safetensors.index.json")
    _save_companions(aside, plan, source, architecture)
    (aside / "README.md").write_text(card, encoding="utf-8")
    old = folder.with_name(f".{folder.name}.old")
    if folder.exists():
        folder.rename(old)
    aside.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _index(parts: list[tuple[str, dict[str, int]]]) -> dict[str, Any]:
    return {
        "metadata": {"total_size": sum(sum(sizes.values()) for _, sizes in parts)},
        "weight_map": {key: name for name, sizes in parts for key in sorted(sizes)},
    }


def _save_companions(
    folder: Path, plan: Plan, source: ModelSource, architecture: str
) -> None:
    """Configuration, the model's own code, generation configuration, tokenizer."""
    if source.factory is not None:
        return  # what the factory makes takes the tensors as its state dict
    config = copy.deepcopy(source.config)
    config.architectures = [architecture]
    config.dtype = DTYPES[plan.dtype]
    config.save_pretrained(folder)
    if source.trust_remote_code and source.folder is not None:
        for code in source.folder.glob("*.py"):
            shutil.copyfile(code, folder / code.name)
    generation = find_file(source, "generation_config.json")
    if generation is not None:
        text = generation.read_text(encoding="utf-8")
        artifact.save(json.loads(text), folder / generation.name)
    tokenizer = open_tokenizer(source)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
