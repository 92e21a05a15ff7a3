"""Tiny configurations of the architectures that the tests cut, two blocks each."""

from model_folders import llama_config, mixtral_config
from transformers import (
    BloomConfig,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    OPTConfig,
    PhiConfig,
    Qwen2Config,
    Qwen2MoeConfig,
)

# No dropout anywhere: two forwards must agree.
_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 256,
    "max_position_embeddings": 128,
    "attention_dropout": 0.0,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
_NO_GPT2_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
_GEMMA = {**_GROUPED, "head_dim": 8, "sliding_window": 4}


def gpt2_config(**changes):
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 256}
    settings = {**sizes, "n_positions": 128, **_NO_GPT2_DROPOUT}
    return GPT2Config(**{**settings, **changes})


def gemma2_config(**changes):
    return Gemma2Config(**{**_GEMMA, "query_pre_attn_scalar": 8, **changes})


def gemma3_config(**changes):
    """Layer 0 looks only four tokens back."""
    kinds = ["sliding_attention", "full_attention"]
    return Gemma3TextConfig(**{**_GEMMA, "layer_types": kinds, **changes})


def half_sparse_config(**changes):
    """Layer 0 is dense, all others have experts."""
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "mlp_only_layers": [0]}
    sizes = {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
    return Qwen2MoeConfig(**{**_GROUPED, **experts, **sizes, **changes})


ARCHITECTURES = {
    "llama-tied": llama_config(num_hidden_layers=2),
    "llama-untied": llama_config(num_hidden_layers=2, tie_word_embeddings=False),
    "mixtral": mixtral_config(num_hidden_layers=2),
    "gpt2": gpt2_config(),
    "qwen2": Qwen2Config(**_GROUPED),
    "gemma2": gemma2_config(),
    "gemma3": gemma3_config(),
    "half-sparse": half_sparse_config(),
    "falcon": FalconConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=256,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    ),
    "bloom": BloomConfig(
        hidden_size=32,
        n_layer=2,
        n_head=4,
        vocab_size=256,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    ),
    "opt": OPTConfig(
        hidden_size=32,
        ffn_dim=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=256,
        max_position_embeddings=128,
        word_embed_proj_dim=32,
        dropout=0.0,
    ),
    "phi": PhiConfig(**_SIZES, resid_pdrop=0.0, embd_pdrop=0.0),
}
