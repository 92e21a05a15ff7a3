"""A recomputed layer: runs again once, and computes the same."""

import gc
import itertools
import weakref

import pytest
import torch
from torch.distributed.pipelining._backward import (
    stage_backward_input,
    stage_backward_weight,
)

from planner.chain.recompute import recomputed


class Counted(torch.nn.Sequential):
    """A layer with several groups of parameters and dropout; counts its forwards."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(
            torch.nn.Linear(4, 8),
            torch.nn.GELU(),
            torch.nn.Dropout(0.5),
            torch.nn.LayerNorm(8),
            torch.nn.Linear(8, 4),
        )
        self.num_forwards = 0

    def forward(self, x):
        self.num_forwards += 1
        return super().forward(x)


def input_of():
    return torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()


def gradients(layer, leaf):
    found = [leaf.grad, *(p.grad for p in layer.parameters())]
    layer.zero_grad()
    return found


def backward(layer, forward):
    leaf = input_of()
    torch.manual_seed(1)
    forward(leaf).square().sum().backward()
    return gradients(layer, leaf)


def split_backward(layer, forward):
    leaf = input_of()
    torch.manual_seed(1)
    loss = forward(leaf).square().sum()
    _, groups = stage_backward_input([loss], None, [leaf], layer.parameters())
    stage_backward_weight(layer.parameters(), groups)
    return gradients(layer, leaf)


@pytest.mark.parametrize("work", [backward, split_backward])
def test_a_layer_runs_again_once_and_draws_the_same_numbers(work):
    layer = Counted()
    expected = work(layer, layer)
    assert layer.num_forwards == 1
    found = work(layer, recomputed(layer))
    assert layer.num_forwards == 3
    for grad, same in zip(found, expected, strict=True):
        assert torch.equal(grad, same)


def test_what_is_drawn_after_a_backward_does_not_depend_on_recompute():
    layer = Counted()
    backward(layer, layer)
    drawn = torch.rand(3)
    backward(layer, recomputed(layer))
    assert torch.equal(torch.rand(3), drawn)


def test_what_is_made_inside_is_gone_after_forward_and_after_backward():
    made = []

    def forward(x):
        inner = torch.tanh(x * 2)
        made.append(weakref.ref(inner))
        return inner.exp()

    gc.disable()
    try:
        output = recomputed(forward)(input_of())
        assert made[0]() is None
        output.sum().backward()
        assert made[1]() is None
    finally:
        gc.enable()


def test_without_gradients_nothing_is_kept_to_run_again():
    layer = Counted()
    with torch.no_grad():
        assert not recomputed(layer)(input_of()).requires_grad
    assert layer.num_forwards == 1


def test_an_input_that_was_changed_meanwhile_is_told():
    hidden = input_of() * 1
    output = recomputed(Counted())(hidden)
    hidden.mul_(2)
    with pytest.raises(RuntimeError, match="was changed in place after its F"):
        output.sum().backward()


@pytest.mark.parametrize(
    ("forward_of_turn", "said"),
    [
        (lambda x, turn: x.exp().exp() if turn == 1 else x.exp(), "saved less"),
        (lambda x, turn: torch.cat([x] * turn).exp(), "of another shape"),
    ],
)
def test_a_layer_that_runs_otherwise_the_second_time_is_told(forward_of_turn, said):
    turns = itertools.count(1)
    output = recomputed(lambda x: forward_of_turn(x, next(turns)))(input_of())
    with pytest.raises(RuntimeError, match=said):
        output.sum().backward()
