"""Layers for the tests of `planner/measure`: plain ones and a model's blocks."""

import torch
from model_folders import llama_config, mixtral_config
from transformers import GPT2Config

from planner.chain.layers import find_chain
from planner.chain.source import ModelSource
from planner.chain.stages import StageRecipe, build_stage
from planner.measure.layer_run import LayerRun, block_run, stage_run

CONFIGS = {
    "llama": llama_config,
    "mixtral": mixtral_config,
    "gpt2": lambda: GPT2Config(
        n_layer=2,
        n_embd=32,
        n_head=4,
        vocab_size=256,
        n_positions=128,
        bos_token_id=None,
        eos_token_id=None,
    ),
}


def module_run(module, shape, *, forward=None):
    """Any module as a layer; `forward` wraps it, for recompute."""
    return LayerRun(
        forward=module if forward is None else forward,
        leaf=torch.randn(shape).requires_grad_(),
        parameters=tuple(module.parameters()),
    )


def model_runs(config, *, shape=(2, 16), dtype="float32", recompute=False):
    """A model's embedding, first block and head."""
    source = ModelSource(id="tests", config=config)
    chain = find_chain(source, attention="sdpa")
    return {
        kind: _run(source, chain, index, shape, dtype, recompute)
        for kind, index in (("embedding", 0), ("block", 1), ("head", -1))
    }


def _run(source, chain, index, shape, dtype, recompute):
    index %= len(chain.layers)
    recipe = StageRecipe(first=index, last=index, dtype=dtype, attention="sdpa")
    stage = build_stage(source, chain, recipe, device=torch.device("cpu"), seed=0)
    width = chain.handover.shape[-1]
    hidden = torch.randn(*shape, width, dtype=getattr(torch, dtype))
    whole = stage_run(stage, hidden, torch.zeros(shape, dtype=torch.long))
    is_block = 0 < index < len(chain.layers) - 1
    return block_run(stage, whole, recompute=recompute) if is_block else whole
