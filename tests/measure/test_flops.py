"""FLOPs by closed form; a multiply-add is two."""

import pytest
import torch
from layer_runs import CONFIGS, model_run, module_run
from model_folders import mixtral_config

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
    run = model_run(CONFIGS["llama"], "block", shape=(B, S))
    expected = ATTENTION + 3 * 2 * TOKENS * H * INNER
    assert count_forward_flops(run) == pytest.approx(expected, rel=0.01)


def test_the_head_is_one_product_and_the_embedding_none():
    head = model_run(CONFIGS["llama"], "head", shape=(B, S))
    one_product = 2 * TOKENS * H * VOCAB
    # A few are positions times rotary frequencies, where that is a matrix product.
    assert count_forward_flops(head) == pytest.approx(one_product, rel=0.001)
    embedding = model_run(CONFIGS["llama"], "embedding", shape=(B, S))
    assert count_forward_flops(embedding) < 0.001 * one_product


@pytest.mark.parametrize(("num_experts", "chosen"), [(4, 1), (4, 3), (8, 3)])
def test_only_chosen_experts_count(num_experts, chosen):
    config = mixtral_config(
        num_hidden_layers=1, num_local_experts=num_experts, num_experts_per_tok=chosen
    )
    run = model_run(config, "block", shape=(B, S))
    router = 2 * TOKENS * H * num_experts
    experts = chosen * 3 * 2 * TOKENS * H * INNER
    expected = ATTENTION + router + experts
    assert count_forward_flops(run) == pytest.approx(expected, rel=0.01)
