"""What a field's name says about its tiny value."""

import pytest

from planner.chain.tiny.rules import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    MAMBA_HEADS,
    VOCAB,
    Facts,
    shrink_field,
)

FACTS = Facts(hidden=4096, heads=32)


def test_the_tiny_widths_fit_together():
    assert HIDDEN == HEADS * HEAD_DIM
    assert 2 * HIDDEN == MAMBA_HEADS * HEAD_DIM


@pytest.mark.parametrize(
    ("name", "value", "tiny"),
    [
        ("attention_dropout", 0.1, 0.0),
        ("router_jitter_noise", 0.01, 0.0),
        ("vocab_size", 128_256, VOCAB),
        ("max_position_embeddings", 131_072, 128),
        ("sliding_window", 4096, 8),
        ("num_attention_heads", 32, 4),
        ("head_dim", 128, 16),
        ("num_local_experts", 64, 8),
        ("num_experts_per_tok", 8, 2),
        ("num_experts_per_tok", 1, 1),
        ("hidden_size", 4096, 64),
        ("intermediate_size", 11_008, 128),
        ("intermediate_size", 2048, 32),
        ("rms_norm_eps", 1e-6, 1e-6),
        ("use_cache", True, True),
        ("hidden_act", "silu", "silu"),
    ],
)
def test_a_name_says_what_becomes_of_a_field(name, value, tiny):
    assert shrink_field(name, value, FACTS) == tiny


@pytest.mark.parametrize(("heads", "tiny"), [(32, 4), (8, 2), (1, 1)])
def test_keys_and_values_are_shared_as_before(heads, tiny):
    assert shrink_field("num_key_value_heads", heads, FACTS) == tiny


def test_what_a_class_leaves_open_is_filled():
    assert shrink_field("head_dim", None, FACTS) == HEAD_DIM
    assert shrink_field("rope_scaling", None, FACTS) is None
