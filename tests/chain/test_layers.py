"""How a model becomes a chain of layers."""

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    gemma2_config,
    gemma3_config,
    gpt2_config,
    half_sparse_config,
)
from model_folders import llama_config, mixtral_config
from transformers import AutoModelForCausalLM

from planner.chain.layers import find_chain
from planner.chain.source import ModelSource
from planner.chain.tiny import tiny_config

BLOCKS_OF = {
    "gpt2": "transformer.h",
    "falcon": "transformer.h",
    "bloom": "transformer.h",
    "opt": "model.decoder.layers",
}
EMBEDDING_OF = {
    "gpt2": "transformer.wte.weight",
    "falcon": "transformer.word_embeddings.weight",
    "bloom": "transformer.word_embeddings.weight",
    "opt": "model.decoder.embed_tokens.weight",
}
UNTIED = {"llama-untied", "mixtral", "qwen2", "half-sparse", "phi"}

every_architecture = pytest.mark.parametrize("name", ARCHITECTURES)


def kinds(chain):
    """Equal letters for layers that cost the same: `abbc`."""
    prints = list(dict.fromkeys(layer.fingerprint for layer in chain.layers))
    return "".join("abcdef"[prints.index(x.fingerprint)] for x in chain.layers)


# --- what every chain is ------------------------------------------------------


@every_architecture
def test_a_chain_is_embedding_blocks_and_head(chains, name):
    path = BLOCKS_OF.get(name, "model.layers")
    blocks = [f"{path}.{i}" for i in range(2)]
    assert list(chains[name].names) == ["embedding", *blocks, "head"]
    assert [layer.name for layer in chains[name].blocks] == blocks


@every_architecture
def test_the_head_is_tied_to_the_embedding_where_the_model_says_so(chains, name):
    chain = chains[name]
    embedding = EMBEDDING_OF.get(name, "model.embed_tokens.weight")
    if name in UNTIED:
        assert (chain.ties, chain.tied, chain.canonical) == ((), (), {})
        return
    assert chain.ties == (("embedding", "head"),)
    assert chain.tied == ((embedding, "lm_head.weight"),)
    assert chain.canonical == dict.fromkeys(chain.tied[0], embedding)
    assert chain.layers[0].num_tied_parameters == 256 * 32
    assert chain.layers[-1].num_tied_parameters == 256 * 32


@every_architecture
def test_parameters_add_up_to_those_of_the_model(chains, name):
    model = AutoModelForCausalLM.from_config(ARCHITECTURES[name])
    chain = chains[name]
    names = {n for layer in chain.layers for n in layer.parameters}
    assert names == {n for n, _ in model.named_parameters(remove_duplicate=False)}
    total = sum(p.numel() for p in model.parameters())
    assert chain.num_parameters == total
    counted = sum(x.num_parameters for x in chain.layers)
    assert counted - sum(256 * 32 for _ in chain.ties) == total
    for block in chain.blocks:
        parameters = model.get_submodule(block.name).parameters()
        assert block.num_parameters == sum(p.numel() for p in parameters)
        assert block.num_tied_parameters == 0


@every_architecture
def test_one_hidden_state_is_handed_over(chains, name):
    handover = chains[name].handover
    assert handover.input_path == (0,)
    for hidden in handover.hidden:
        assert hidden.shape == (3, 17, 32)
        assert hidden.dtype == torch.bfloat16
    assert len(handover.hidden) == len(chains[name].blocks) + 1
    in_tuple = handover.output_index == 0 and handover.output_length > 0
    bare = handover.output_index is None and handover.output_length == 0
    assert in_tuple or bare


# --- which layers are alike ---------------------------------------------------


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (llama_config(num_hidden_layers=4), "abbbbc"),
        (mixtral_config(), "abbbbc"),
        (gpt2_config(n_layer=4), "abbbbc"),
        (gemma2_config(num_hidden_layers=4), "abcbcd"),  # every other one slides
        (
            gemma3_config(
                num_hidden_layers=4,
                layer_types=[*["sliding_attention"] * 3, "full_attention"],
            ),
            "abbbcd",
        ),
        (half_sparse_config(num_hidden_layers=4), "abcccd"),
    ],
    ids=lambda value: getattr(value, "model_type", value),
)
def test_layers_that_cost_the_same_have_one_fingerprint(config, expected):
    chain = find_chain(ModelSource(id="tiny", config=config), attention="auto")
    assert kinds(chain) == expected


def test_a_block_has_the_name_of_its_class(chains):
    found = [layer.kind for layer in chains["llama-tied"].layers]
    assert found == ["embedding", *["LlamaDecoderLayer"] * 2, "head"]


def test_the_attention_that_the_model_chose_is_written_down(chains):
    assert chains["bloom"].attention == "eager"
    assert chains["llama-tied"].attention == "sdpa"


def test_nothing_is_allocated_for_a_large_model():
    config = llama_config(
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
        tie_word_embeddings=False,
    )
    chain = find_chain(ModelSource(id="llama-3-8b", config=config), attention="sdpa")
    assert chain.num_parameters == 8_030_261_248
    assert kinds(chain) == "a" + 32 * "b" + "c"


@pytest.mark.transformers5
def test_layers_that_share_keys_and_values_are_never_parted():
    config = tiny_config("gemma4_text")
    config.num_kv_shared_layers = 2  # of four: the last two read the first two's
    chain = find_chain(ModelSource(id="tiny", config=config), attention="auto")
    assert [x.layer for x in chain.uncuttable] == [1, 2, 3]
    assert chain.cuts == (0, 4)
