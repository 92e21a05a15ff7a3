"""FLOPs by closed form; a multiply-add is two."""

import pytest
import torch
from layer_runs import CONFIGS, model_runs, module_run
from model_folders import llama_config, mixtral_config

from planner.measure.fake_tensors import fake_tensors
from planner.measure.flops import count_forward_flops

B, S = 2, 16
TOKENS = B * S
H, INNER, VOCAB, HEADS, KV_HEADS = 32, 64, 256, 4, 2

ATTENTION = (
    2 * TOKENS * H * (H + H + 2 * H * KV_HEADS // HEADS)  # q, o and k, v
    + 2 * 2 * B * S * S * H  # scores, and what they weigh
)


def test_a_matrix_product():
    run = module_run(torch.nn.Linear(5, 7), (B, S, 5))
    assert count_forward_flops(run) == 2 * TOKENS * 5 * 7


def test_a_llama_block_is_attention_and_three_matrices():
    runs = model_runs(llama_config(), shape=(B, S))
    expected = ATTENTION + 3 * 2 * TOKENS * H * INNER
    assert count_forward_flops(runs["block"]) == pytest.approx(expected, rel=0.01)


def test_the_head_is_one_product_and_the_embedding_none():
    runs = model_runs(llama_config(), shape=(B, S))
    assert count_forward_flops(runs["head"]) == 2 * TOKENS * H * VOCAB
    assert count_forward_flops(runs["embedding"]) == 0


@pytest.mark.parametrize("num_experts", [4, 8])
@pytest.mark.parametrize("chosen", [1, 2])
def test_only_chosen_experts_count(num_experts, chosen):
    config = mixtral_config(num_local_experts=num_experts, num_experts_per_tok=chosen)
    runs = model_runs(config, shape=(B, S))
    router = 2 * TOKENS * H * num_experts
    experts = chosen * 3 * 2 * TOKENS * H * INNER
    expected = ATTENTION + router + experts
    assert count_forward_flops(runs["block"]) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("name", CONFIGS)
def test_fake_tensors_count_alike(name):
    real = model_runs(CONFIGS[name]())["block"]
    with fake_tensors():
        fake = model_runs(CONFIGS[name]())["block"]
        computed = count_forward_flops(fake)
    assert computed == count_forward_flops(real) > 0
