"""Types of models whose configuration the general rules do not fit."""

from collections.abc import Callable, Mapping
from typing import Any

from transformers import SiglipVisionConfig

from planner.chain.tiny.rules import EXPERTS, HIDDEN, MAMBA_HEADS, VOCAB

_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_INDEXER = {
    "indexer_n_heads": 8,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 256,
    "indexer_budget": 64,
    "indexer_compress_ratio": 2,
}

# Types that cannot be trained from token ids by themselves, and why.
NO_TINY_CONFIG: Mapping[str, str] = {
    name: f"{name} drafts for another model: it needs that model's keys and values"
    for name in ("gemma4_assistant", "gemma4_unified_assistant")
}

# Fields without a usable default: the class fails on what it leaves open itself.
START_FIELDS: Mapping[str, dict[str, Any]] = {
    "bloom": {"n_layer": 30},  # the default has two
    "cohere_compass_text": {"rope_parameters": {"full_attention": _ROPE}},
    "dots1": {"n_routed_experts": EXPERTS, "n_shared_experts": 1},
    "hunyuan_v1_moe": {"num_experts": EXPERTS, "moe_topk": 2},  # the default has one
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8},
    "qwen4_exp_text": _INDEXER,
    "qwen4_exp": {"text_config": _INDEXER},
    "xmod": {"default_language": "en_XX"},
}


def _bytes_by_hash(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"encoder_hash_byte_group_vocab": 64, "encoder_hash_byte_group_size": [3, 4]}


def _loops(fields: Mapping[str, Any]) -> dict[str, Any]:
    num_layers = fields["num_hidden_layers"]
    return {
        "n_input_layers": 1,
        "n_recurrent_layers": num_layers - 2,
        "n_output_layers": 1,
    }


def _rope_in_attention(fields: Mapping[str, Any]) -> dict[str, Any]:
    fields["attn_config"].rope_theta = 10000.0
    fields["attn_config"].clip_qkv = 8.0
    return {}


def _kinds_with_counts(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"attention_types": [[["global", "local"], fields["num_layers"] // 2]]}


def _axes(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "axial_pos_shape": (4, 4),
        "axial_pos_embds_dim": (HIDDEN // 4, HIDDEN - HIDDEN // 4),
        "hash_seed": 0,
        "num_buckets": 2,
        "local_attn_chunk_length": 4,
        "lsh_attn_chunk_length": 4,
    }


def _decoder_on_top(fields: Mapping[str, Any]) -> dict[str, Any]:
    decoder = fields["decoder"]
    decoder.num_codebooks = 1  # its rows are token ids as of any other model
    return {
        name: value
        for name, value in vars(decoder).items()
        if not name.startswith("_") and name not in ("dtype", "transformers_version")
    }


def _any_vision(config: Any) -> None:
    tower = SiglipVisionConfig(
        hidden_size=HIDDEN,
        intermediate_size=HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=32,
        patch_size=16,
    )
    tower.vocab_size, tower.vocab_offset, tower.rms_norm_eps = 8, VOCAB - 16, 1e-6
    config.audio_config.vocab_size, config.audio_config.vocab_offset = 8, VOCAB - 8
    vars(config)["vision_config"] = tower  # the class accepts its own only


def _state_heads(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"num_heads": MAMBA_HEADS}


# Model type to the fields that it needs instead, from the fields so far.
EXCEPTIONS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "blt": _bytes_by_hash,  # tables of hashes are no vocabulary by name
    "dbrx": _rope_in_attention,  # read by the model, unknown to the configuration
    "dory": _loops,  # three counts whose sum is the number of layers
    "gpt_neo": _kinds_with_counts,  # [[kinds, how often], ...]
    "mamba2": _state_heads,  # heads of the state space named like attention's
    "musicgen": _decoder_on_top,  # the class reads the decoder's fields here
    "musicgen_melody": _decoder_on_top,
    "reformer": _axes,  # positions factor into axes: one sequence length only
}

# Model type to what is done to the finished configuration.
FINISHED: Mapping[str, Callable[[Any], None]] = {
    "gemma3n": _any_vision,  # its own needs a package for images
}
