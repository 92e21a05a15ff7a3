"""Stages, one after the other, compute what the unsplit model computes."""

from functools import cache
from itertools import pairwise

import pytest
import torch
from architectures import ARCHITECTURES
from chain_tools import make_stage, padded_batch, run_stages, run_whole, whole_model

from planner.chain.loss import summed_loss
from planner.chain.source import open_source

every_architecture = pytest.mark.parametrize("name", ARCHITECTURES)
NUM_LAYERS = 4


@pytest.fixture(scope="module")
def expected(chains, folders):
    """Loss and gradients of the unsplit models."""
    return cache(
        lambda name: run_whole(folders[name], padded_batch(), chains[name].attention)
    )


def stages_of(chain, folder, bounds, recompute=()):
    """`bounds` 0, 1, 4 are the stages of layer 0 and of layers 1-3."""
    source = open_source(str(folder))
    return [
        make_stage(source, chain, first, end - 1, recompute=recompute)
        for first, end in pairwise(bounds)
    ]


def assert_equal_training(found, expected):
    (loss, grads), (expected_loss, expected_grads) = found, expected
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    assert grads.keys() == expected_grads.keys()
    for key, grad in expected_grads.items():
        assert (grads[key] - grad).abs().max() <= 1e-5, key


# --- the same numbers ---------------------------------------------------------


@pytest.mark.parametrize("cut", range(1, NUM_LAYERS))
@every_architecture
def test_two_stages_train_as_one_model(chains, folders, expected, name, cut):
    stages = stages_of(chains[name], folders[name], [0, cut, NUM_LAYERS])
    assert_equal_training(run_stages(stages, padded_batch()), expected(name))


@every_architecture
def test_every_layer_a_stage_with_recompute(chains, folders, expected, name):
    stages = stages_of(
        chains[name], folders[name], range(NUM_LAYERS + 1), chains[name].names[1:-1]
    )
    assert_equal_training(run_stages(stages, padded_batch()), expected(name))


def test_one_stage_is_the_whole_model(chains, folders, expected):
    stages = stages_of(chains["gpt2"], folders["gpt2"], [0, NUM_LAYERS])
    assert_equal_training(run_stages(stages, padded_batch()), expected("gpt2"))


def test_no_mask_means_no_padding(chains, folders):
    stages = stages_of(chains["opt"], folders["opt"], [0, 2, NUM_LAYERS])
    plain = padded_batch() | {"attention_mask": None}
    full = padded_batch() | {"attention_mask": torch.ones(3, 10, dtype=torch.long)}
    with torch.no_grad():
        losses = [
            stages[1](stages[0](**batch), **batch).item() for batch in (plain, full)
        ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


# --- what goes in and out -----------------------------------------------------


def test_a_stage_returns_the_hidden_state_that_the_model_has_there(chains, folders):
    batch = padded_batch()
    stages = stages_of(chains["llama-tied"], folders["llama-tied"], [0, 1, 2, 4])
    with torch.no_grad():
        model = whole_model(folders["llama-tied"], "sdpa")
        states = model(**batch, output_hidden_states=True).hidden_states
        embedded = stages[0](**batch)
        after_one = stages[1](embedded, **batch)
    torch.testing.assert_close(embedded, states[0])
    torch.testing.assert_close(after_one, states[1])


def test_the_last_stage_returns_logits_when_there_are_no_labels(chains, folders):
    batch = {"input_ids": padded_batch()["input_ids"]}
    stages = stages_of(chains["gemma2"], folders["gemma2"], [0, 3, 4])
    with torch.no_grad():
        logits = stages[1](stages[0](**batch), **batch)
        expected = whole_model(folders["gemma2"])(**batch).logits
    torch.testing.assert_close(logits, expected)


def test_only_the_own_parameters_have_memory(chains, folders):
    chain = chains["llama-tied"]
    stages = stages_of(chain, folders["llama-tied"], [0, 2, 3, 4])
    for stage in stages:
        names = {n for layer in stage.layers for n in layer.parameters}
        real = {
            name
            for name, p in stage.model.named_parameters(remove_duplicate=False)
            if not p.is_meta and p.untyped_storage().nbytes() > p.itemsize
        }
        assert real == names
    first, middle, last = (stage.owned_parameters() for stage in stages)
    tied = "model.embed_tokens.weight"
    assert first.keys() & last.keys() == {tied}
    assert not middle.keys() & (first.keys() | last.keys())
    assert torch.equal(first[tied], last[tied])


def test_a_whole_model_in_one_stage_holds_a_tied_parameter_once(chains, folders):
    (stage,) = stages_of(chains["gpt2"], folders["gpt2"], [0, NUM_LAYERS])
    names = [name for name, _ in whole_model(folders["gpt2"]).named_parameters()]
    assert sorted(stage.owned_parameters()) == sorted(names)
    assert stage.model.lm_head.weight is stage.model.transformer.wte.weight


def test_a_stand_in_needs_no_buffer_where_its_stage_computes(chains, folders):
    # The embedding of Gemma 3 scales by a buffer. Tensors on meta mix with a number
    # in the memory of the host, but not with a vector, nor with a number on a card.
    _, last = stages_of(chains["gemma3"], folders["gemma3"], [0, 3, 4])
    embedding = last.model.model.embed_tokens
    ((name, scale),) = embedding.named_buffers()
    embedding.register_buffer(name, scale.expand(1), persistent=False)
    hidden = torch.zeros(3, 10, 32)
    with torch.no_grad():
        loss = last(hidden, **padded_batch())
    assert loss.isfinite()
    assert not embedding.get_buffer(name).is_meta


def test_recompute_runs_forward_again_and_keeps_less(chains, folders):
    chain, folder = chains["llama-tied"], folders["llama-tied"]
    calls, kept = {}, {}
    for recompute in ((), ("model.layers.0",)):
        (stage,) = stages_of(chain, folder, [0, NUM_LAYERS], recompute)
        runs = calls.setdefault(recompute, [])
        mlp = stage.model.model.layers[0].mlp
        mlp.register_forward_pre_hook(lambda *_, runs=runs: runs.append("F"))
        sizes = kept.setdefault(recompute, [])
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x, sizes=sizes: sizes.append(x.numel()) or x, lambda x: x
        ):
            loss = stage(**padded_batch())
        loss.backward()
    assert [len(runs) for runs in calls.values()] == [1, 2]
    without, with_recompute = map(sum, kept.values())
    assert with_recompute < without


# --- the loss -----------------------------------------------------------------


def test_the_loss_is_the_sum_over_the_next_tokens():
    logits = torch.tensor([[[0.0, 0.0], [0.0, 0.0], [9.0, 0.0]]])
    labels = torch.tensor([[1, 0, 1]])
    # Two targets, each with probability a half; the last position has none.
    assert summed_loss(logits, labels).item() == pytest.approx(2 * 0.6931472)


def test_ignored_labels_have_no_loss():
    logits = torch.zeros(1, 4, 8)
    assert summed_loss(logits, torch.full((1, 4), -100)).item() == 0
    one = summed_loss(logits, torch.tensor([[5, -100, 3, -100]]))
    assert one.item() == pytest.approx(torch.log(torch.tensor(8.0)).item())


def test_the_loss_of_bfloat16_logits_is_in_fp32():
    logits = torch.zeros(1, 2, 8, dtype=torch.bfloat16)
    assert summed_loss(logits, torch.tensor([[1, 2]])).dtype == torch.float32
