"""Parameters that layers share are counted once."""

from planner.memory import stage_parameters
from planner.model_profile import LayerProfile

BLOCK = LayerProfile(name="block", num_parameters=1000)


def tied(name, num_tied=0):
    return LayerProfile(name=name, num_parameters=100, num_tied_parameters=num_tied)


def test_a_tie_within_a_stage_is_counted_once():
    ties = [("embedding", "head")]
    both = (tied("embedding"), BLOCK, tied("head", num_tied=60))
    assert stage_parameters(both, ties) == 100 + 1000 + 100 - 60
    assert stage_parameters(both[1:], ties) == 1000 + 100


def test_a_tie_of_unsaid_size_is_the_smaller_layer():
    head = LayerProfile(name="head", num_parameters=130)
    assert stage_parameters((tied("embedding"), head), [("head", "embedding")]) == 130


def test_three_layers_that_share_are_counted_once():
    layers = (tied("a"), tied("b", 100), tied("c", 100))
    ties = [("a", "b"), ("a", "c"), ("b", "c")]
    assert stage_parameters(layers, ties) == 100
