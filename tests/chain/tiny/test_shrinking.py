"""A tiny configuration is of the same architecture as the large one."""

import pytest
from transformers import (
    DeepseekV3Config,
    Gemma3TextConfig,
    LlamaConfig,
    MixtralConfig,
    Qwen2Config,
)

from planner.chain.tiny import shrink_config, tiny_config
from planner.errors import ModelError


def test_the_large_configuration_stays_as_it_is():
    large = LlamaConfig(num_hidden_layers=80)
    before = large.to_dict()
    tiny = shrink_config(large)
    assert large.to_dict() == before
    assert type(tiny) is LlamaConfig
    assert (tiny.num_hidden_layers, tiny.hidden_size, tiny.vocab_size) == (4, 64, 256)


@pytest.mark.parametrize("tied", [True, False])
def test_ties_stay(tied):
    assert (
        shrink_config(Qwen2Config(tie_word_embeddings=tied)).tie_word_embeddings is tied
    )


def test_groups_of_heads_stay():
    tiny = shrink_config(LlamaConfig(num_attention_heads=32, num_key_value_heads=8))
    assert (tiny.num_attention_heads, tiny.num_key_value_heads) == (4, 2)


def test_the_balance_loss_is_switched_as_before():
    large = MixtralConfig(output_router_logits=True, router_aux_loss_coef=0.5)
    tiny = shrink_config(large)
    assert (tiny.output_router_logits, tiny.router_aux_loss_coef) == (True, 0.5)
    assert (tiny.num_local_experts, tiny.num_experts_per_tok) == (8, 2)


def test_the_pattern_of_layers_stays():
    kinds = shrink_config(Gemma3TextConfig(num_hidden_layers=26)).layer_types
    assert len(kinds) == 4
    assert set(kinds) == {"sliding_attention", "full_attention"}


def test_dense_layers_before_experts_stay():
    tiny = shrink_config(DeepseekV3Config())
    assert 0 < tiny.first_k_dense_replace < tiny.num_hidden_layers


def test_special_tokens_are_different_and_in_the_vocabulary():
    large = LlamaConfig(
        bos_token_id=128_000, eos_token_id=128_001, pad_token_id=128_004
    )
    tiny = shrink_config(large)
    assert (tiny.pad_token_id, tiny.bos_token_id, tiny.eos_token_id) == (0, 1, 2)


def test_configurations_inside_are_shrunk_too():
    assert tiny_config("gemma3").text_config.hidden_size == 64


def test_nothing_is_left_to_chance():
    tiny = tiny_config("gpt2")
    assert (tiny.resid_pdrop, tiny.embd_pdrop, tiny.attn_pdrop) == (0.0, 0.0, 0.0)


def test_shrinking_twice_changes_nothing_more():
    once = tiny_config("mixtral")
    assert shrink_config(once).to_dict() == once.to_dict()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gemma4_assistant", "needs that model's keys and values"),
        ("no_such_type", "transformers knows no model type no_such_type"),
    ],
)
def test_what_has_no_tiny_configuration_says_why(name, message):
    with pytest.raises(ModelError, match=message):
        tiny_config(name)
