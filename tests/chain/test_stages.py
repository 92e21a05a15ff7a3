"""Stages that share a device hold a tied parameter once."""

import pytest
import torch
from model_folders import llama_config, save_model

from planner.chain.layers import find_chain
from planner.chain.source import open_source
from planner.chain.stages import StageRecipe, build_stage, share_parameters

EMBEDDING = "model.embed_tokens.weight"


@pytest.mark.parametrize(("tied", "num_shared"), [(True, 1), (False, 0)])
def test_a_tied_parameter_of_two_stages_becomes_one_tensor(tmp_path, tied, num_shared):
    config = llama_config(num_hidden_layers=2, tie_word_embeddings=tied)
    source = open_source(str(save_model(config, tmp_path / "model")))
    chain = find_chain(source, attention="sdpa")
    stages = [
        build_stage(
            source,
            chain,
            StageRecipe(first=first, last=last, dtype="float32", attention="sdpa"),
            device=torch.device("cpu"),
            seed=None,
        )
        for first, last in [(0, 1), (3, 3)]
    ]
    before = [set(stage.owned_parameters()) for stage in stages]
    parameters = share_parameters(stages)

    assert [set(stage.owned_parameters()) for stage in stages] == before
    assert set(parameters) == before[0] | before[1]
    owned = [p for stage in stages for p in stage.owned_parameters().values()]
    assert len(owned) - len({id(p) for p in owned}) == num_shared
    assert {id(p) for p in owned} == {id(p) for p in parameters.values()}
    head = stages[1].model.get_parameter("lm_head.weight")
    assert (head is parameters[EMBEDDING]) == tied
    assert stages[0].model.get_parameter(EMBEDDING) is parameters[EMBEDDING]
