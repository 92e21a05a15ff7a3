"""The tensors of a checkpoint, written and read by torch.distributed.checkpoint.

Everything is keyed by name: a parameter or buffer by the model's own,
`optimizer.NAME.KEY` for a tensor of the optimizer, `random.RANK.KEY` for a random
state. So a process reads what its stages need, whoever wrote it, and another cut is
nothing special.

torch's own file format keeps an index that is pickled, and reading it may run any
code. Its Hugging Face format does not: every process writes safetensors files, and
the index is their headers.

Known limitations: training waits while a checkpoint is written.
"""

import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from planner.errors import ArtifactError, RunError

OPTIMIZER, RANDOM = "optimizer.", "random."
# Host memory that writing takes, besides the tensors: twice a file [bytes].
_FILE_BYTES = 2**30
_NAMED = 4  # names that a message lists


def write_tensors(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write the tensors of all processes; they call it together.

    Args:
        folder: Exists and is empty.
        tensors: Of this process; no other one passes the same name.

    Raises:
        RunError: A process could not write; the disk is full, for example.
    """
    writer = HuggingFaceStorageWriter(
        str(folder), fqn_to_index_mapping=_files(tensors), save_distributed=True
    )
    try:
        save(dict(tensors), storage_writer=writer)
    except CheckpointException as error:
        msg = f"cannot write {folder.parent}: {_cause(error)}"
        raise RunError(msg) from None


def stored_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """What a checkpoint holds, without reading it.

    Args:
        folder: A complete checkpoint.

    Returns:
        Name to a tensor of that shape and dtype on meta.

    Raises:
        ArtifactError: A file of it is damaged.
    """
    try:
        found = HuggingFaceStorageReader(str(folder)).read_metadata()
    except Exception as error:  # safetensors' own and those of the system
        msg = f"the checkpoint {folder} is damaged ({error}); go on from another one"
        raise ArtifactError(msg) from error
    return {
        name: torch.empty(x.size, dtype=x.properties.dtype, device="meta")
        for name, x in found.state_dict_metadata.items()
        if isinstance(x, TensorStorageMetadata)
    }


def read_tensors(
    folder: Path, tensors: dict[str, torch.Tensor], *, alone: bool = False
) -> None:
    """Fill tensors from a checkpoint, in place; all processes call it together.

    Args:
        folder: A complete checkpoint.
        tensors: Name to where it goes; processes may ask for different ones.
        alone: Whether this process reads by itself.

    Raises:
        ArtifactError: A name is not there, has another shape, or cannot be read.
    """
    reader = HuggingFaceStorageReader(str(folder))
    try:
        with warnings.catch_warnings():
            # That there is only one process, which is so.
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            load(dict(tensors), storage_reader=reader, no_dist=alone)
    except CheckpointException as error:
        msg = f"cannot read the checkpoint {folder}: {_cause(error)}"
        raise ArtifactError(msg) from None


def check_tensors(
    folder: Path, stored: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]
) -> None:
    """Make sure that a checkpoint is of this very model.

    Args:
        folder: Of the checkpoint, for the message.
        stored: What it holds.
        wanted: What this process needs.

    Raises:
        ArtifactError: A name is not there or has another shape or dtype.
    """
    missing = [name for name in wanted if name not in stored]
    if missing:
        msg = (
            f"the checkpoint {folder} does not hold {len(missing)} tensors that the "
            f"model needs, such as {', '.join(missing[:_NAMED])}; it is of another "
            "model"
        )
        raise ArtifactError(msg)
    for name, tensor in wanted.items():
        found = stored[name]
        if (found.shape, found.dtype) != (tensor.shape, tensor.dtype):
            msg = (
                f"{name} is {_describe(found)} in the checkpoint {folder} and "
                f"{_describe(tensor)} in the model of the plan"
            )
            raise ArtifactError(msg)


def optimizer_states(
    stored: dict[str, torch.Tensor], name: str
) -> dict[str, torch.Tensor]:
    """What a checkpoint holds of a parameter's optimizer.

    Args:
        stored: All that it holds.
        name: Of the parameter.

    Returns:
        Such as `exp_avg` to a tensor on meta; empty if it was never stepped.
    """
    prefix = f"{OPTIMIZER}{name}."
    return {
        key.removeprefix(prefix): tensor
        for key, tensor in stored.items()
        if key.startswith(prefix) and "." not in key.removeprefix(prefix)
    }


def _files(tensors: dict[str, torch.Tensor]) -> dict[str, int]:
    """Into which of its process's files each tensor goes, from 1."""
    gathered: list[Any] = [None] * dist.get_world_size()
    sizes = {name: tensor.nbytes for name, tensor in tensors.items()}
    dist.all_gather_object(gathered, sizes)
    files = {}
    for found in gathered:
        number, in_file = 1, 0
        for name, size in found.items():
            if in_file and in_file + size > _FILE_BYTES:
                number, in_file = number + 1, 0
            files[name] = number
            in_file += size
    return files


def _cause(error: CheckpointException) -> str:
    cause, _ = next(iter(error.failures.values()))
    return f"{getattr(cause, 'strerror', None) or cause}"


def _describe(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
