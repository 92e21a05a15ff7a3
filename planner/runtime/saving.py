"""What a run leaves behind: an ordinary Hugging Face folder and a checkpoint.

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
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

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
) -> None:
    """Write the model in Hugging Face format; all devices call it together.

    Args:
        folder: Where it goes; must not exist.
        plan: The plan.
        source: The model it was made from.
        stages: Those of this process.
        owned: `id` of each parameter that this process saves.
    """
    rank, num_devices = dist.get_rank(), dist.get_world_size()
    aside = folder.with_name(f".{folder.name}.partial")
    if rank == 0:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
    dist.barrier()
    # Stages of one device that share a parameter give it the same name.
    tensors = {k: v for x in stages for k, v in saved_tensors(x, owned).items()}
    name = "model.safetensors"
    if num_devices > 1:
        name = f"model-{rank + 1:05}-of-{num_devices:05}.safetensors"
    save_file(tensors, aside / name, metadata={"format": "pt"})
    parts: list[Any] = [None] * num_devices
    sizes = {key: tensor.nbytes for key, tensor in tensors.items()}
    dist.all_gather_object(parts, (name, sizes))
    if rank == 0:
        if num_devices > 1:
            artifact.save(_index(parts), aside / "model.safetensors.index.json")
        _save_companions(aside, plan, source, stages[0].chain.architecture)
        aside.rename(folder)
    dist.barrier()


def save_checkpoint(folder: Path, step: int, tensors: dict[str, torch.Tensor]) -> None:
    """Write weights and optimizer states by parameter name; all devices together.

    Args:
        folder: `checkpoints` of the run directory.
        step: Steps done so far.
        tensors: Of this device; no other device passes the same name.
    """
    final = folder / f"step-{step}"
    aside = folder / f".step-{step}.partial"
    if dist.get_rank() == 0:
        shutil.rmtree(aside, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    save_distributed(tensors, checkpoint_id=aside)
    if dist.get_rank() == 0:
        artifact.save({"step": step}, aside / "progress.json")
        aside.rename(final)
    dist.barrier()


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
