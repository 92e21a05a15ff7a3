"""A block by itself does what the block does inside the model."""

import copy
import math

import pytest
import torch
from layer_runs import CONFIGS, model_run

from planner.chain.layers import find_chain
from planner.chain.source import ModelSource
from planner.chain.stages import StageRecipe, build_stage
from planner.measure.layer_run import block_run, stage_run

# Two runs must be equal.
NO_DROPOUT = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_block_alone_gives_output_and_gradients_of_its_stage(name):
    config = copy.deepcopy(CONFIGS[name])
    config.update(NO_DROPOUT)
    source = ModelSource(id="tests", config=config)
    chain = find_chain(source, attention="sdpa")
    recipe = StageRecipe(first=2, last=2, dtype="float32", attention="sdpa")
    stage = build_stage(source, chain, recipe, device=torch.device("cpu"), seed=0)
    ids = torch.randint(0, 256, (2, 16))
    rows = {"input_ids": ids, "labels": ids}
    whole = stage_run(stage, [torch.randn(2, 16, 32)], rows)
    results = []
    for run in (
        whole,
        block_run(stage, whole),
        block_run(stage, whole, recompute=True),
    ):
        output = run.forward(run.make_input())
        output.square().sum().backward()
        results.append(
            [output.detach(), run.leaf.grad, *(p.grad for p in run.parameters)]
        )
        run.drop_gradients()
    for alone in results[1:]:
        for ours, theirs in zip(alone, results[0], strict=True):
            assert torch.equal(ours, theirs)


def test_every_input_has_memory_of_its_own():
    run = model_run(CONFIGS["llama"], "block")
    first, second = run.make_input(), run.make_input()
    assert torch.equal(first, second)
    storages = {x.untyped_storage().data_ptr() for x in (first, second, run.leaf)}
    assert len(storages) == 3


def test_the_first_layer_has_no_input():
    run = model_run(CONFIGS["llama"], "embedding")
    assert run.leaf is None
    assert run.make_input() is None
    assert run.forward(None).shape == (2, 16, 32)


def test_the_last_layer_gives_the_summed_loss():
    run = model_run(CONFIGS["llama"], "head")
    loss = run.forward(run.make_input())
    assert loss.shape == ()
    # Weights are small: every token of 256 is about as likely.
    num_targets = 2 * 15
    assert loss.item() == pytest.approx(num_targets * math.log(256), rel=0.1)


def test_live_before_the_run_are_parameters_gradients_and_inputs():
    run = model_run(CONFIGS["llama"], "block")
    alive = {id(tensor) for tensor in run.live_tensors()}
    assert {id(tensor) for tensor in (*run.parameters, run.leaf)} <= alive
    run.forward(run.make_input()).sum().backward()
    grads = {id(parameter.grad) for parameter in run.parameters}
    assert grads <= {id(tensor) for tensor in run.live_tensors()}
    run.drop_gradients()
    assert not grads & {id(tensor) for tensor in run.live_tensors()}
