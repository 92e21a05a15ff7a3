"""What a model froze, such as sinusoidal positions, stays as the model made it."""

import pytest
import torch
from chain_tools import make_stage, padded_batch, whole_model
from model_folders import save_model
from transformers import AutoModelForCausalLM, MarianConfig, PegasusConfig

from planner.chain.layers import find_chain
from planner.chain.source import open_source

_SIZES = {
    "d_model": 32,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 64,
    "vocab_size": 256,
    "max_position_embeddings": 128,
    "dropout": 0.0,
    "pad_token_id": 0,
    "is_decoder": True,
    "is_encoder_decoder": False,
}
CONFIGS = {"marian": MarianConfig, "pegasus": PegasusConfig}
POSITIONS = "model.decoder.embed_positions.weight"

both_ways = pytest.mark.parametrize("seed", [None, 0], ids=["loaded", "drawn"])


@pytest.fixture(scope="module", params=CONFIGS)
def folder(request, tmp_path_factory):
    config = CONFIGS[request.param](**_SIZES)
    return save_model(config, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def source(folder):
    return open_source(str(folder))


@pytest.fixture(scope="module")
def chain(source):
    return find_chain(source, attention="eager")


def frozen(parameters):
    return {name: p for name, p in parameters.items() if not p.requires_grad}


@both_ways
def test_frozen_parameters_stay_frozen_and_all_others_learn(source, chain, seed):
    stages = [
        make_stage(source, chain, first, first + 1, seed=seed) for first in (0, 2)
    ]
    first, last = (frozen(stage.owned_parameters()) for stage in stages)
    assert set(first) == {POSITIONS}
    assert not last


@both_ways
def test_frozen_parameters_have_the_models_values(source, chain, folder, seed):
    positions = make_stage(source, chain, 0, 1, seed=seed).owned_parameters()[POSITIONS]
    assert torch.equal(positions, whole_model(folder).get_parameter(POSITIONS))


def test_frozen_values_come_from_the_checkpoint_if_it_has_others(
    folder, chain, tmp_path
):
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.get_parameter(POSITIONS).fill_(0.5)
    model.save_pretrained(tmp_path)
    stage = make_stage(open_source(str(tmp_path)), chain, 0, 1)
    assert torch.all(stage.owned_parameters()[POSITIONS] == 0.5)


@both_ways
def test_a_backward_leaves_no_gradient_at_frozen_parameters(source, chain, seed):
    first, last = (make_stage(source, chain, i, i + 1, seed=seed) for i in (0, 2))
    output = first(**padded_batch())
    last(output, **padded_batch()).backward()
    grads = {name: p.grad for name, p in first.owned_parameters().items()}
    assert grads[POSITIONS] is None
    assert grads["model.decoder.embed_tokens.weight"] is not None
