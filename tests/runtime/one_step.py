"""One step of many plans on the same processes: the loss and every gradient.

Building a model takes longer than a step of it, so plans that cut it alike share
its stages.
"""

from unittest.mock import patch

import torch
from one_process import mean_loss
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from planner.plan import Plan
from planner.runtime import trainer as trainer_module
from planner.runtime.data import Sequences
from planner.runtime.job import Job
from planner.runtime.trainer import DeviceTrainer, build_stage, find_chain

_built = {}


def make_jobs(plans: list[Plan], sequences: Sequences, options, work_dir):
    """Jobs that share their data."""
    path = work_dir / "sequences.safetensors"
    save_file(sequences.tensors(), path)
    return [
        Job(
            plan=plan,
            options=options.as_record(),
            num_steps=1,
            pretrained=True,
            sequences_path=str(path),
            work_dir=str(work_dir),
        )
        for plan in plans
    ]


def run_jobs(jobs, rank):
    """On every process: per job the loss, the norm and the gradients."""
    with (
        patch.object(trainer_module, "find_chain", _same_chain),
        patch.object(trainer_module, "build_stage", _same_stage),
    ):
        return [_one_step(job, rank) for job in jobs]


def _same_chain(source, **settings):
    key = (source.id, *settings.values())
    return _built.get(key) or _built.setdefault(key, find_chain(source, **settings))


def _same_stage(source, chain, recipe, **settings):
    key = (source.id, recipe)
    if key not in _built:
        _built[key] = build_stage(source, chain, recipe, **settings)
    _built[key].zero_grad()
    return _built[key]


def _one_step(job, rank):
    trainer = DeviceTrainer(job, torch.device("cpu"))
    batch = whole_batch(job.sequences(), job.plan.global_batch_size)
    loss, norm = trainer.gradients(batch, masked=True)
    gradients = {
        name: None if p.grad is None else p.grad.numpy()
        for name, p in trainer.parameters.items()
    }
    return loss, norm, gradients


def whole_batch(sequences, size):
    return sequences.batch(torch.arange(size), size)


def one_process(folder, sequences, batch_size):
    """The same of the unsplit model."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    loss = mean_loss(model, whole_batch(sequences, batch_size))
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}
