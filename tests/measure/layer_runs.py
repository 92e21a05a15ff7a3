"""Layers for the tests of `planner/measure`: plain ones and a model's blocks."""

import pytest
import torch
from model_folders import llama_config, mixtral_config
from transformers import GPT2Config

from planner.chain.layers import find_chain
from planner.chain.source import ModelSource
from planner.chain.stages import StageRecipe, build_stage
from planner.measure.layer_run import LayerRun, block_run, stage_run

CONFIGS = {
    "llama": llama_config(num_hidden_layers=2),
    "mixtral": mixtral_config(num_hidden_layers=2),
    "gpt2": GPT2Config(
        n_layer=2,
        n_embd=32,
        n_head=4,
        vocab_size=256,
        n_positions=128,
        bos_token_id=None,
        eos_token_id=None,
        # Dropout keeps other masks on a card.
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
    ),
}

# The experts of transformers 4 look at the values that the router gives them.
FAKE_CONFIGS = [
    "llama",
    pytest.param("mixtral", marks=pytest.mark.transformers5),
    "gpt2",
]


def module_run(module, shape, *, forward=None, ends_graph=True):
    """Any module as a layer; `forward` wraps it, for recompute."""
    return LayerRun(
        forward=module if forward is None else forward,
        leaf=torch.randn(shape).requires_grad_(),
        parameters=tuple(module.parameters()),
        ends_graph=ends_graph,
    )


CPU = torch.device("cpu")


def model_run(
    config, kind, *, shape=(2, 16), dtype="float32", recompute=False, device=CPU
):
    """A model's embedding, first block or head."""
    index = {"embedding": 0, "block": 1, "head": len(_chain(config).layers) - 1}[kind]
    settings = {"shape": shape, "dtype": dtype, "device": device}
    stage, whole = model_stage(config, index, index, **settings)
    return block_run(stage, whole, recompute=recompute) if kind == "block" else whole


def model_stage(
    config, first, last, *, shape, dtype="float32", recompute=False, device=CPU
):
    """A stage of a model and the run of it; layers count from the end, too."""
    chain = _chain(config)
    first, last = (index % len(chain.layers) for index in (first, last))
    inner = [layer.name for layer in chain.inner] if recompute else []
    stage = build_stage(
        ModelSource(id="tests", config=config),
        chain,
        StageRecipe(
            first=first,
            last=last,
            dtype=dtype,
            attention="auto",
            recompute=tuple(inner),
        ),
        device=device,
        seed=0,
    )
    width = chain.handover.hidden[0].shape[-1]
    hidden = torch.randn(*shape, width).to(device, getattr(torch, dtype))
    received = () if first == 0 else (hidden,)
    ids = torch.zeros(shape, dtype=torch.long, device=device)
    return stage, stage_run(stage, received, {"input_ids": ids, "labels": ids})


def _chain(config):
    key = config.to_json_string()
    if key not in _CHAINS:
        source = ModelSource(id="tests", config=config)
        _CHAINS[key] = find_chain(source, attention="auto")
    return _CHAINS[key]


_CHAINS = {}
