"""Norm, clipping and ties are those of one process."""

import copy

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
    clip,
    find_ties,
    squared_norm,
)

LLAMA = ["embedding", *(f"model.layers.{i}" for i in range(2)), "head"]


def parameters_with_gradients(dtype=torch.float32, *, size=3.0):
    generator = torch.Generator().manual_seed(0)
    parameters = []
    for shape in [(7, 5), (11,), (3, 2, 4)]:
        parameter = torch.nn.Parameter(torch.zeros(shape, dtype=dtype))
        grad = torch.randn(shape, generator=generator)
        parameter.grad = (size * grad).to(dtype)
        parameters.append(parameter)
    return parameters


def test_three_and_four_have_norm_five():
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(3)]
    parameters[0].grad = torch.tensor([3.0])
    parameters[2].grad = torch.tensor([4.0])
    assert squared_norm(parameters) == 25.0


def test_without_gradients_the_norm_is_0():
    assert squared_norm([]) == 0.0
    assert squared_norm([torch.nn.Parameter(torch.zeros(3))]) == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_squares_of_the_stages_sum_to_the_square_of_the_model(dtype):
    parameters = parameters_with_gradients(dtype)
    exact = sum(p.grad.double().square().sum().item() for p in parameters)
    split = squared_norm(parameters[:1]) + squared_norm(parameters[1:])
    assert squared_norm(parameters) == pytest.approx(exact, rel=1e-5)
    assert split == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("max_norm", [0.1, 1.0, 1e3])
def test_clipping_is_torchs_own(max_norm):
    ours, theirs = parameters_with_gradients(), parameters_with_gradients()
    clip(ours[:2], squared_norm(ours) ** 0.5, max_norm)
    clip(ours[2:], squared_norm(theirs) ** 0.5, max_norm)
    torch.nn.utils.clip_grad_norm_(theirs, max_norm)
    for mine, yours in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, yours.grad, rtol=1e-6, atol=0)


def test_small_gradients_are_left_as_they_are():
    parameters = parameters_with_gradients(size=1e-3)
    before = [copy.deepcopy(p.grad) for p in parameters]
    clip(parameters, squared_norm(parameters) ** 0.5, 1.0)
    assert all(map(torch.equal, before, (p.grad for p in parameters)))


def test_a_largest_norm_of_0_is_off():
    parameters = parameters_with_gradients(size=1e3)
    before = [copy.deepcopy(p.grad) for p in parameters]
    clip(parameters, squared_norm(parameters) ** 0.5, 0.0)
    assert all(map(torch.equal, before, (p.grad for p in parameters)))


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
