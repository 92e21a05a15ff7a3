"""I and W of a stage whose graph is in parts make the gradients of its B."""

import pytest
import torch
from layer_runs import CONFIGS, model_stage
from torch import nn

from planner.chain.layers import find_chain
from planner.chain.source import ModelSource
from planner.chain.split_backward import (
    GraphParts,
    can_end_with,
    input_backward,
    weight_backward,
)

SHAPE = (2, 16)


def whole_gradients(run):
    run.drop_gradients()
    run.forward(run.make_input()).sum().backward()
    return gradients(run)


def gradients(run):
    found = [p.grad.clone() for p in run.parameters], run.leaf.grad.clone()
    run.drop_gradients()
    return found


def split(run):
    """The groups that wait for W, and how many parts the graph had."""
    with run.graph_parts.made() as boundaries:
        output = run.forward(run.make_input())
    num_parts = len(boundaries) + 1
    groups = input_backward(
        [output], [torch.ones_like(output)], [run.leaf], run.parameters, boundaries
    )[1]
    assert not boundaries
    return groups, num_parts


def weights_below(nodes):
    """What a walk through the graph comes to."""
    waiting, seen, found = list(nodes), set(nodes), set()
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            found.add(node.variable)
        below = {x for x, _ in node.next_functions if x is not None} - seen
        seen |= below
        waiting += below
    return found


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(("first", "last"), [(1, 2), (1, 3), (2, 3)])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_layer_is_a_part_and_gradients_are_those_of_b(
    name, first, last, recompute
):
    stage, run = model_stage(
        CONFIGS[name], first, last, shape=SHAPE, recompute=recompute
    )
    expected, expected_input = whole_gradients(run)
    groups, num_parts = split(run)
    weight_backward(run.parameters, groups)
    found, found_input = gradients(run)
    assert num_parts == len(stage.layers)
    assert torch.equal(found_input, expected_input)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_w_of_a_layer_walks_through_that_layer_only():
    stage, run = model_stage(CONFIGS["llama"], 1, 3, shape=SHAPE)
    layers = [set(stage.owned_parameters(x).values()) for x in stage.layers]
    groups, _ = split(run)
    for group in groups:
        below = weights_below(group["intermediates"]) & set(run.parameters)
        assert below
        assert any(below <= own for own in layers)
    run.drop_gradients()


def test_without_being_asked_the_graph_is_one():
    _, run = model_stage(CONFIGS["llama"], 1, 3, shape=SHAPE)
    output = run.forward(run.make_input())
    assert set(run.parameters) <= weights_below([output.grad_fn])


def test_a_weight_of_two_parts_gets_both_gradients():
    linear, parts = nn.Linear(3, 3), GraphParts()
    leaf = torch.randn(2, 3, requires_grad=True)
    linear(linear(leaf)).sum().backward()
    expected = linear.weight.grad.clone(), leaf.grad.clone()
    linear.zero_grad()
    leaf.grad = None
    weights = list(linear.parameters())
    with parts.made() as boundaries:
        output = linear(parts.end_here(linear(leaf)))
    groups = input_backward(
        [output], [torch.ones_like(output)], [leaf], weights, boundaries
    )[1]
    weight_backward(weights, groups)
    assert torch.allclose(linear.weight.grad, expected[0])
    assert torch.allclose(leaf.grad, expected[1])


def test_a_graph_does_not_end_with_a_view_nor_with_what_takes_no_gradient():
    parts = GraphParts()
    whole = torch.randn(2, 3, requires_grad=True) * 2
    hidden = [whole.view(3, 2), torch.randn(2, 3)]
    with parts.made() as boundaries:
        assert all(parts.end_here(x) is x for x in hidden)
        assert parts.end_here(whole) is not whole
    assert len(boundaries) == 1
    assert parts.end_here(whole) is whole
    assert [can_end_with(x) for x in (whole, *hidden)] == [True, False, False]


def test_the_ends_of_a_model_are_between_its_layers():
    source = ModelSource(id="tests", config=CONFIGS["llama"])
    chain = find_chain(source, attention="auto", shape=SHAPE)
    assert chain.calls_between_parts == {0, 1, 2}
