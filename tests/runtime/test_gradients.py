"""Ties over devices, and the layout of gradients."""

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
    lay_out_like_parameters,
)
from planner.runtime.place import Place

LLAMA = ["embedding", *(f"model.layers.{i}" for i in range(2)), "head"]


V_ORDER = ("0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0")
LOOP_ORDER = ("0F0 2F0 2B0 0B0", "1F0 3F0 3B0 1B0")
ONE_DEVICE = ("0F0 1F0 1B0 0B0",)


@pytest.mark.parametrize(
    ("tied", "counts", "actions", "stages", "devices"),
    [
        (True, [2, 2], None, (0, 1), (0, 1)),
        (True, [1, 1, 1, 1], None, (0, 3), (0, 3)),
        (True, [1, 1, 1, 1], LOOP_ORDER, (0, 3), (0, 1)),
        (True, [1, 1, 1, 1], V_ORDER, None, None),
        (True, [2, 2], ONE_DEVICE, None, None),
        (True, [4], None, None, None),
        (False, [2, 2], None, None, None),
    ],
)
def test_a_tie_is_exchanged_where_devices_share_it(
    tied, counts, actions, stages, devices
):
    config = llama_config(num_hidden_layers=2, tie_word_embeddings=tied)
    chain = find_chain(ModelSource(id="tests", config=config), attention="sdpa")
    plan = make_plan("tests", LLAMA, counts, actions=actions, num_microbatches=1)
    name = "model.embed_tokens.weight"
    expected = (
        () if stages is None else (Tie(name=name, stages=stages, devices=devices),)
    )
    assert find_ties(plan, chain) == expected


def tied_gradients(tie, parameters, device):
    return TiedGradients((tie,), parameters, Place(device=device), num_devices=3)


def test_every_copy_of_a_pipeline_exchanges_for_itself(monkeypatch):
    groups = []
    monkeypatch.setattr(dist, "new_group", lambda ranks: groups.append(ranks) or ranks)
    monkeypatch.setattr(dist, "all_reduce", lambda grad, group: grad.add_(sum(group)))
    tie = Tie(name="embed.weight", stages=(0, 2), devices=(0, 2))
    parameter = torch.nn.Parameter(torch.zeros(1))
    place = Place(device=2, copy=1, num_copies=2)
    tied = TiedGradients((tie,), {"embed.weight": parameter}, place, num_devices=3)
    tied.exchange()
    assert groups == [[0, 2], [3, 5]]
    assert parameter.grad.item() == 3 + 5


def test_the_first_stages_device_owns_a_tie_over_three_stages(monkeypatch):
    groups = []
    monkeypatch.setattr(dist, "new_group", groups.append)
    tie = Tie(name="embed.weight", stages=(0, 2, 3), devices=(1, 0))
    parameters = {"embed.weight": torch.nn.Parameter(torch.ones(3))}
    assert tied_gradients(tie, parameters, 0).owned == []
    assert tied_gradients(tie, parameters, 1).owned == [*parameters.values()]
    assert tied_gradients(tie, {}, 2).owned == []
    assert groups == [[0, 1]] * 3, "every process makes every group"


def test_a_gradient_gets_the_layout_of_its_parameter():
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    parameter.grad = torch.arange(6.0).reshape(3, 2).T
    lay_out_like_parameters([parameter, torch.nn.Parameter(torch.zeros(1))])
    assert parameter.grad.is_contiguous()
    assert parameter.grad.tolist() == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize("drift", [0.0, 1e-7])
def test_a_tied_copy_that_drifted_is_noticed(monkeypatch, drift):
    parameter = torch.nn.Parameter(torch.ones(3))

    def broadcast(tensor, src, group):
        tensor.add_(drift)

    monkeypatch.setattr(dist, "new_group", lambda ranks: None)
    monkeypatch.setattr(dist, "broadcast", broadcast)
    tie = Tie(name="embed.weight", stages=(0, 2), devices=(0, 2))
    tied = tied_gradients(tie, {"embed.weight": parameter}, 2)
    assert tied.owned == []
    if drift:
        with pytest.raises(
            RunError, match=r"embed\.weight on stages 0, 2 have drifted"
        ):
            tied.check_copies()
    else:
        tied.check_copies()
