"""Ties are those of one process."""

import pytest
import torch
import torch.distributed as dist
from model_folders import llama_config
from plan_maker import make_plan

from planner.chain.layers import find_chain
from planner.chain.source import ModelSource
from planner.errors import RunError
from planner.runtime.gradients import (
    Tie,
    TiedGradients,
    find_ties,
)

LLAMA = ["embedding", *(f"model.layers.{i}" for i in range(2)), "head"]


@pytest.mark.parametrize(
    ("tied", "counts", "expected"),
    [
        (True, [2, 2], (0, 1)),
        (True, [1, 1, 1, 1], (0, 3)),
        (True, [4], None),
        (False, [2, 2], None),
    ],
)
def test_a_tie_is_exchanged_where_stages_share_it(tied, counts, expected):
    config = llama_config(num_hidden_layers=2, tie_word_embeddings=tied)
    chain = find_chain(ModelSource(id="tests", config=config), attention="sdpa")
    ties = find_ties(make_plan("tests", LLAMA, counts), chain)
    name = "model.embed_tokens.weight"
    assert ties == (() if expected is None else (Tie(name=name, stages=expected),))


@pytest.mark.parametrize("drift", [0.0, 1e-7])
def test_a_tied_copy_that_drifted_is_noticed(monkeypatch, drift):
    parameter = torch.nn.Parameter(torch.ones(3))

    def broadcast(tensor, src, group):
        tensor.add_(drift)

    monkeypatch.setattr(dist, "new_group", lambda ranks: None)
    monkeypatch.setattr(dist, "broadcast", broadcast)
    tie = Tie(name="embed.weight", stages=(0, 2))
    tied = TiedGradients((tie,), {"embed.weight": parameter}, stage=2)
    assert tied.owned == []
    if drift:
        with pytest.raises(
            RunError, match=r"embed\.weight on stages 0, 2 have drifted"
        ):
            tied.check_copies()
    else:
        tied.check_copies()
