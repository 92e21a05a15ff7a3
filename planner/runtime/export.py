"""A checkpoint as an ordinary Hugging Face folder.

One stage of the checkpoint's plan after the other, so that no more than the largest
of them is in memory at once.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import torch

from planner.chain.layers import Chain, find_chain
from planner.chain.source import ModelSource, quiet_transformers
from planner.chain.stages import StageRecipe, build_stage
from planner.chain.weights import saved_tensors
from planner.errors import ArtifactError
from planner.plan import Plan
from planner.runtime.checkpoint import restore_weights
from planner.runtime.checkpoint_folder import (
    find_checkpoint,
    load_checkpoint_plan,
    load_progress,
)
from planner.runtime.job import open_planned_source
from planner.runtime.model_card import model_card
from planner.runtime.saving import begin_model, finish_model, write_shard


def export(checkpoint: Path, folder: Path, *, trust_remote_code: bool = False) -> None:
    """Write the model of a checkpoint as `from_pretrained` loads it.

    Args:
        checkpoint: A checkpoint, or a run directory, which stands for its newest one.
        folder: Where it goes; must be new.
        trust_remote_code: Whether code that the model brings may run.

    Raises:
        ArtifactError: There is no complete checkpoint, it is damaged, or something
            is in the way.
        ModelError: The model of its plan cannot be found.
    """
    checkpoint = find_checkpoint(checkpoint)
    plan = load_checkpoint_plan(checkpoint).trusting(trust_remote_code)
    progress = load_progress(checkpoint)
    aside = _aside(folder)
    try:
        with quiet_transformers():
            source = open_planned_source(plan)
            chain = find_chain(source, attention=plan.attention)
            shards = _shards(checkpoint, plan, source, chain)
            parts = [
                write_shard(aside, tensors, number, plan.num_stages)
                for number, tensors in enumerate(shards, start=1)
            ]
            card = model_card(plan, progress.options, progress.step)
            finish_model(aside, folder, parts, plan, source, chain.architecture, card)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _shards(
    checkpoint: Path, plan: Plan, source: ModelSource, chain: Chain
) -> Iterator[dict[str, torch.Tensor]]:
    """The tensors of one stage after the other; what several hold, with the first."""
    written: set[str] = set()
    for stage in plan.stages:
        recipe = StageRecipe(
            first=stage.first_layer,
            last=stage.last_layer,
            dtype=plan.dtype,
            attention=plan.attention,
        )
        cpu = torch.device("cpu")
        module = build_stage(source, chain, recipe, device=cpu, seed=None, empty=True)
        parameters = module.owned_parameters()
        restore_weights(checkpoint, [module], parameters, alone=True)
        own = {id(p) for name, p in parameters.items() if name not in written}
        written |= parameters.keys()
        yield saved_tensors(module, own)


def _aside(folder: Path) -> Path:
    if folder.exists():
        msg = f"{folder} is there already; choose another -o"
        raise ArtifactError(msg)
    try:
        return begin_model(folder)
    except OSError as error:
        msg = f"{folder} cannot be made: {error.strerror}; choose another -o"
        raise ArtifactError(msg) from error
