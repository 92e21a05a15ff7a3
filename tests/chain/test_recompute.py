"""A recomputed layer keeps its inputs, runs once more and computes the same."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.distributed.pipelining._backward import (
    stage_backward_input,
    stage_backward_weight,
)

from planner.chain.recompute import recomputed


class Layer(nn.Module):
    """Two products and a dropout, which draws the same mask the second time."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
        self.num_calls = 0
        self.made = []

    def forward(self, x, *, scale):
        self.num_calls += 1
        inner = torch.tanh(self.up(x))
        self.made.append(weakref.ref(inner))
        inner = nn.functional.dropout(inner, 0.5)
        return x + self.down(inner) * scale[0]


def inputs():
    torch.manual_seed(1)
    return torch.randn(4, 8, requires_grad=True), (torch.rand(8),)


def gradients(layer, x):
    return [x.grad, *(p.grad for p in layer.parameters())]


def plain():
    layer, (x, scale) = Layer(), inputs()
    torch.manual_seed(2)
    layer(x, scale=scale).sum().backward()
    return gradients(layer, x)


def forward_again(layer, x, scale):
    torch.manual_seed(2)
    return recomputed(layer.forward)(x, scale=scale)


def test_a_backward_gives_the_same_gradients_after_one_more_forward():
    layer, (x, scale) = Layer(), inputs()
    output = forward_again(layer, x, scale)
    assert layer.num_calls == 1
    drawn = torch.get_rng_state()
    output.sum().backward()
    assert layer.num_calls == 2
    assert torch.equal(torch.get_rng_state(), drawn), "who draws next is not disturbed"
    for found, expected in zip(gradients(layer, x), plain(), strict=True):
        assert torch.equal(found, expected)


def test_both_halves_of_a_backward_together_run_the_layer_once_more():
    layer, (x, scale) = Layer(), inputs()
    output = forward_again(layer, x, scale)
    weights = list(layer.parameters())
    ones = [torch.ones(4, 8)]
    _, groups = stage_backward_input([output], ones, [x], iter(weights))
    assert len(groups) > 1
    stage_backward_weight(iter(weights), groups)
    assert layer.num_calls == 2
    for found, expected in zip(gradients(layer, x), plain(), strict=True):
        torch.testing.assert_close(found, expected)


def test_what_is_made_inside_is_gone_after_forward_and_after_backward():
    layer, (x, scale) = Layer(), inputs()
    gc.disable()
    try:
        output = forward_again(layer, x, scale)
        assert layer.made[0]() is None
        output.sum().backward()
        assert layer.made[1]() is None
    finally:
        gc.enable()


def test_an_input_that_was_changed_is_noticed():
    layer, (x, scale) = Layer(), inputs()
    hidden = x * 2
    output = forward_again(layer, hidden, scale)
    with torch.no_grad():
        hidden.add_(1)
    with pytest.raises(RuntimeError, match="changed in place after its F"):
        output.sum().backward()


@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        (lambda x: x.repeat(2, 1).exp(), r"of shape \(8, 8\) where it was \(4, 8\)"),
        (lambda x: x + 1, "fewer tensors than the first time"),
    ],
)
def test_a_second_run_that_differs_is_noticed(second, complaint):
    runs = iter([torch.exp, second])
    x = torch.randn(4, 8, requires_grad=True)
    output = recomputed(lambda x: next(runs)(x))(x)
    with pytest.raises(RuntimeError, match=complaint):
        output.sum().backward()
